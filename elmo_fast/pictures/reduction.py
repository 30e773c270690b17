"""Many dimensions to two, for drawing: principal components, and t-SNE on top of them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, check_choice, require

METHODS = ("tsne", "pca")
# t-SNE gets this many principal components; the others are mostly noise.
TSNE_INPUT = 50
PERPLEXITY = 30.0
EQUAL = 1e-5  # relative; in two batches a sentence has the same vectors except for rounding
FEWEST = {"pca": 1, "tsne": 4}


class Plane(NamedTuple):
    """points [N, 2] float32; how: one line on what they are, for below a picture."""

    points: npt.NDArray[np.float32]
    how: str


def principal(matrix: npt.NDArray[Any], count: int, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    """Return up to `count` principal components of N rows, [N, count], and the fraction of variance of each."""
    pca = require("sklearn.decomposition", "plots", "drawing vectors in two dimensions").PCA
    count = min(count, *matrix.shape)
    centred = matrix - matrix.mean(axis=0)
    # Rows that are equal except for rounding have no variance to share.
    if np.abs(centred).max() <= EQUAL * np.abs(matrix).max():
        return np.zeros((len(matrix), count), np.float32), np.zeros(count)
    # Exact, not randomized, with fixed signs: the picture is the same every time.
    model = pca(count, svd_solver="full" if min(matrix.shape) <= 2000 else "covariance_eigh", random_state=seed)
    return model.fit_transform(centred).astype(np.float32), model.explained_variance_ratio_


def to_plane(matrix: npt.NDArray[Any], method: str = "tsne", seed: int = 0) -> Plane:
    """Project N rows of D numbers to N points.

    Args:
        matrix: [N, D], finite.
        method: "pca": the first two principal components; "tsne": t-SNE (van der Maaten and Hinton 2008) of the first
            50, started from the first two, so that its overall shape is not chance.
        seed: of t-SNE.

    Raises: ElmoFastError: another method, too few rows, numbers that are not finite; MissingExtraError.
    """
    check_choice("method", method, METHODS)
    if len(matrix) < FEWEST[method]:
        raise ElmoFastError(f"tsne needs {FEWEST['tsne']} vectors or more, and pca {FEWEST['pca']}; got {len(matrix)}")
    if not np.isfinite(matrix).all():
        raise ElmoFastError("matrix must be finite; got NaN or infinite numbers")
    if method == "pca":
        points, shares = principal(matrix, 2, seed)
        wide = np.pad(points, [(0, 0), (0, 2 - points.shape[1])])
        return Plane(wide, f"first two principal components, {shares.sum():.0%} of the variance")
    tsne = require("sklearn.manifold", "plots", "t-SNE").TSNE
    perplexity = min(PERPLEXITY, (len(matrix) - 1) / 3)
    rows, _ = principal(matrix, TSNE_INPUT, seed)
    if not rows.any() or rows.shape[1] < 2:
        raise ElmoFastError('t-SNE needs vectors that differ, of 2 dimensions or more; method="pca" draws these')
    points = tsne(init="pca", perplexity=perplexity, random_state=seed).fit_transform(rows)
    return Plane(points, f"t-SNE, perplexity {perplexity:.0f}: near points are similar, far distances mean little")
