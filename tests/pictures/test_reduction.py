"""Two dimensions that keep what they say they keep, the same every time."""

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures.reduction import principal, to_plane


def clouds(count=30, width=20, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 8, (3, width))
    return np.concatenate([centre + rng.normal(size=(count, width)) for centre in centres]).astype(np.float32)


def test_principal_components_are_those_of_the_singular_values():
    matrix = clouds()
    rows, shares = principal(matrix, 3, 0)
    left, values, _ = np.linalg.svd((matrix - matrix.mean(0)).astype(np.float64), full_matrices=False)
    np.testing.assert_allclose(np.abs(rows), np.abs(left[:, :3] * values[:3]), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(shares, (values**2 / (values**2).sum())[:3], rtol=1e-4)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_what_is_alike_is_near_and_the_picture_is_the_same_twice(method):
    """Each point's nearest other is of its own cloud."""
    matrix = clouds()
    plane = to_plane(matrix, method)
    distances = np.linalg.norm(plane.points[:, None] - plane.points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (distances.argmin(1) // 30 == np.arange(90) // 30).all()
    np.testing.assert_array_equal(plane.points, to_plane(matrix, method).points)
    assert ("t-SNE" if method == "tsne" else "of the variance") in plane.how


def test_few_rows_and_columns():
    """Four words, two words, one column, equal rows."""
    assert to_plane(clouds()[:4], "tsne").points.shape == (4, 2)
    assert [to_plane(clouds()[:count], "pca").points.shape for count in (1, 2)] == [(1, 2), (2, 2)]
    assert (to_plane(np.arange(3.0)[:, None], "pca").points[:, 1] == 0).all()
    assert (to_plane(np.ones((5, 4)), "pca").points == 0).all()


@pytest.mark.parametrize(
    ("matrix", "method", "message"),
    [
        (np.ones((5, 4)), "umap", "method must be one of tsne, pca; got 'umap'"),
        (np.ones((3, 4)), "tsne", "tsne needs 4 vectors or more, and pca 1; got 3"),
        (np.ones((0, 4)), "pca", "and pca 1; got 0"),
        (np.full((5, 4), np.nan), "pca", "must be finite"),
        (np.ones((5, 4)), "tsne", "needs vectors that differ"),
    ],
)
def test_what_cannot_be_reduced_is_one_sentence(matrix, method, message):
    with pytest.raises(ElmoFastError, match=message):
        to_plane(matrix, method)
