"""The senses of a word: its occurrences in a text, clustered by their vectors in context, and drawn.

Each cluster has a colour, a shape, and the words that are typical of it. The drawing is a picture, or one
self-contained HTML page, whose points show their sentences.
"""

import html
import importlib.resources
import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast._io.atomic_file import write_text
from elmo_fast.embed.layers import Layers, layer_number
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError, check_choice, check_counts, require
from elmo_fast.modules.bilm import BiLM
from elmo_fast.pictures.reduction import FEWEST, METHODS, principal, to_plane
from elmo_fast.pictures.style import COLOURS, GREY, legend_below, new_figure, plain, shown, write_picture
from elmo_fast.text.sources import TextFile


class Occurrence(NamedTuple):
    """A word in a text."""

    line: int
    """which line, from 0"""
    place: int
    """which token of the line, from 0"""
    tokens: Sequence[str]
    """all tokens of the line"""


def find_occurrences(
    path: str | os.PathLike[str],
    word: str | None,
    *,
    most: int = 2000,
    match_case: bool = False,
    seed: int = 0,
    tokenizer: str | None = None,
) -> tuple[list[Occurrence], int]:
    """Return the occurrences of a word in a text, in order, and their total number.

    Args:
        path: text, one sentence per line, plain or .gz; tokenizer: one of TOKENIZERS, None for white space.
        word: a token; upper and lower case are the same unless match_case; None finds every token.
        most: the maximum number; if there are more, a uniform sample by seed.

    Raises: ElmoFastError if there is none, or for text that cannot be read.
    """
    check_counts(most=most)
    expected = word if word is None or match_case else word.casefold()
    occurrences = [
        Occurrence(line, place, tokens)
        for line, (tokens, _) in enumerate(TextFile(path, tokenizer=tokenizer).sentences())
        for place, token in enumerate(tokens)
        if word is None or (token if match_case else token.casefold()) == expected
    ]
    if not occurrences:
        what = "contains no tokens" if word is None else f"word must be a token of it; got {word!r}"
        raise ElmoFastError(f"{os.fspath(path)}: {what}")
    if len(occurrences) <= most:
        return occurrences, len(occurrences)
    chosen = np.sort(np.random.default_rng(seed).choice(len(occurrences), most, replace=False))
    return [occurrences[index] for index in chosen], len(occurrences)


def occurrence_vectors(
    embedder: Any,
    occurrences: Sequence[Occurrence],
    layer: str | int = "top",
    *,
    batch_size: int = 64,
    progress: Callable[[int], None] = lambda tokens: None,
) -> npt.NDArray[np.float32]:
    """Return the vector of each occurrence in its sentence, [N, 2D] float32.

    Args:
        embedder: an ElmoEmbedder; each sentence runs by itself, whether it carries state or not.
        layer: "top", or a number from 0 (0 has no context).
        batch_size: sentences per batch.
        progress: called with the number of tokens of each sentence.

    Raises: ElmoFastError.
    """
    number = layer_number(layer, embedder.elmo_bilm.num_layers)
    return token_vectors(embedder.elmo_bilm, occurrences, number, batch_size=batch_size, progress=progress)


def token_vectors(
    bilm: BiLM,
    occurrences: Sequence[Any],
    layers: Layers,
    *,
    batch_size: int | None = None,
    progress: Callable[[int], None] = lambda tokens: None,
) -> npt.NDArray[np.float32]:
    """Return the vector of each token in its sentence, the layers side by side, [N, W]; equal sentences run once.

    occurrences: have `tokens` and `place`, as Occurrence; layers, batch_size: as in TokenVectors; progress: called with
    the number of tokens of each sentence.
    """
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, one in enumerate(occurrences):
        rows.setdefault(tuple(one.tokens), []).append(row)
    embed = TokenVectors(bilm, layers, batch_size=batch_size)
    out = np.empty((len(occurrences), embed.width), np.float32)
    for sentence, vectors in zip(rows, embed(list(rows)), strict=True):
        for row in rows[sentence]:
            out[row] = vectors[occurrences[row].place]
        progress(len(sentence))
    return out


CLUSTERINGS = ("kmeans", "agglomerative")
COMPONENTS = 10  # principal components that are clustered: a few hundred points say nothing about more
MOST_CLUSTERS = 8
CLOUDS = 10  # draws of a single cloud, for the silhouette that chance gives
CONTEXT = 5  # words to either side that count as a word's context
TYPICAL = 6
TIMES = 4  # so much larger are the odds of a typical word in its cluster than elsewhere
SURE = 1.645  # standard errors of one-sided 95 %


class Senses(NamedTuple):
    """Occurrences in clusters, largest cluster first."""

    points: npt.NDArray[np.float32]
    """where each occurrence is drawn, [N, 2]"""
    how: str
    """what the points are"""
    labels: npt.NDArray[np.int64]
    """the cluster of each occurrence, [N]"""
    sizes: list[int]
    """the number of occurrences of each cluster"""
    typical: list[list[str]]
    """the words that are most typical of each cluster's contexts"""
    silhouettes: dict[int, float]
    """number of clusters tried -> mean silhouette"""
    chance: float | None = None
    """the largest mean silhouette of single clouds; None: not drawn"""


def senses_of(
    occurrences: Sequence[Occurrence],
    vectors: npt.NDArray[Any],
    clusters: int | str = "auto",
    *,
    clustering: str = "kmeans",
    method: str = "pca",
    seed: int = 0,
) -> Senses:
    """Cluster occurrences by the first 10 principal components of their vectors.

    "auto" tries 2 to 8 clusters and takes the number with the largest mean silhouette (Rousseeuw 1987). It takes one
    cluster if one of ten single normal clouds with the same variances, divided in the same way, has an equal or larger
    silhouette: then there is no evidence of groups.

    Args:
        occurrences: N, for the words typical of each cluster: their odds to occur within 5 words are four times those
            in the other clusters or more, and surely larger (95 %).
        vectors: [N, D], finite.
        clusters: "auto", or the number.
        clustering: "kmeans", or "agglomerative" (Ward).
        method: projection of the points: "pca" or "tsne".
        seed: of k-means, t-SNE and the clouds.

    Raises: ElmoFastError, MissingExtraError without scikit-learn.
    """
    check_choice("clustering", clustering, CLUSTERINGS)
    if vectors.ndim != 2 or len(vectors) != len(occurrences) or not len(occurrences):
        raise ElmoFastError(f"vectors must be [N, D], a row per occurrence; got {list(vectors.shape)}")
    if clusters != "auto" and not (isinstance(clusters, int) and 1 <= clusters <= len(vectors)):
        raise ElmoFastError(f'clusters must be "auto" or 1 to {len(vectors)}, the occurrences; got {clusters!r}')
    rows = _without_rounding(principal(vectors, COMPONENTS, seed)[0])
    # t-SNE needs four occurrences that differ.
    if method in METHODS and (len(vectors) < FEWEST[method] or not rows.any()):
        method = "pca"
    points, how = to_plane(vectors, method, seed)
    labels, silhouettes, chance = _clustered(rows, clusters, clustering, seed)
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    labels = np.argsort(order)[labels]
    typical = typical_words(occurrences, labels)
    return Senses(points, how, labels, sizes[order].tolist(), typical, silhouettes, chance)


def _without_rounding(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Round rows to a thousandth of their spread: batches change a sentence's vectors by rounding."""
    step = 1e-3 * float(rows.std(axis=0).max())
    return np.round(rows / step) * step if step > 0 else np.zeros(rows.shape)


def _clustered(
    rows: npt.NDArray[np.float64], clusters: int | str, clustering: str, seed: int
) -> tuple[npt.NDArray[np.int64], dict[int, float], float | None]:
    """Return the cluster of each row, the silhouette of each number of clusters tried, and that of chance."""
    one = np.zeros(len(rows), np.int64)
    distinct = len(np.unique(rows, axis=0))
    if clusters != "auto":
        if int(clusters) > distinct:
            raise ElmoFastError(f"{clusters} clusters need as many different vectors; got {distinct}")
        return one if clusters == 1 else _labels(rows, int(clusters), clustering, seed), {}, None
    # A silhouette needs a cluster of two at least.
    counts = range(2, min(MOST_CLUSTERS, distinct, len(rows) - 1) + 1)
    tried = {count: _labels(rows, count, clustering, seed) for count in counts}
    if not tried:
        return one, {}, None
    silhouettes = {count: _silhouette(rows, labels) for count, labels in tried.items()}
    best = max(silhouettes, key=lambda count: (silhouettes[count], -count))
    clouds = np.random.default_rng(seed).normal(0, rows.std(axis=0), (CLOUDS, *rows.shape))
    chance = max(_silhouette(cloud, _labels(cloud, best, clustering, seed)) for cloud in clouds)
    return tried[best] if silhouettes[best] > chance else one, silhouettes, chance


def _silhouette(rows: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> float:
    return float(require("sklearn.metrics", "plots", "clustering senses").silhouette_score(rows, labels))


def _labels(rows: npt.NDArray[Any], count: int, clustering: str, seed: int) -> npt.NDArray[np.int64]:
    cluster = require("sklearn.cluster", "plots", "clustering senses")
    kmeans = clustering == "kmeans"
    model = cluster.KMeans(count, n_init=10, random_state=seed) if kmeans else cluster.AgglomerativeClustering(count)
    return model.fit_predict(rows).astype(np.int64)


def context_of(occurrence: Occurrence) -> list[str]:
    """Return the words within 5 places of an occurrence, in lower case, punctuation and the word itself left out."""
    place, tokens = occurrence.place, occurrence.tokens
    near = [*tokens[max(0, place - CONTEXT) : place], *tokens[place + 1 : place + 1 + CONTEXT]]
    itself = tokens[place].casefold()
    return [low for low in map(str.casefold, near) if any(map(str.isalnum, low)) and low != itself]


def typical_words(occurrences: Sequence[Occurrence], labels: npt.NDArray[np.int64]) -> list[list[str]]:
    """Return up to 6 words for each cluster that distinguish its contexts from the other clusters' contexts.

    A single cluster's contexts are compared with the rest of its sentences.
    """
    counts = [Counter[str]() for _ in range(int(labels.max()) + 1)]
    for occurrence, label in zip(occurrences, labels, strict=True):
        counts[label].update(context_of(occurrence))
    everything = sum(counts, Counter[str]())
    if len(counts) == 1:
        words = (word.casefold() for one in occurrences for word in one.tokens)
        everything |= Counter(word for word in words if any(map(str.isalnum, word)))
    return [_distinguishing(own, everything - own) for own in counts]


def _distinguishing(own: Counter[str], others: Counter[str]) -> list[str]:
    """Return the words whose odds are surely and much larger in `own`, the largest lower bound of the ratio first."""
    inside, outside = own.total(), others.total()
    bounds = {}
    for word, count in own.items():
        # Haldane's correction, and Woolf's interval: a word that occurs once is sure of nothing.
        table = count + 0.5, inside - count + 0.5, others[word] + 0.5, outside - others[word] + 0.5
        ratio = math.log(table[0] * table[3] / (table[1] * table[2]))
        bound = ratio - SURE * math.sqrt(sum(1 / each for each in table))
        if ratio >= math.log(TIMES) and bound > 0:
            bounds[word] = bound
    return sorted(bounds, key=lambda word: (-bounds[word], word))[:TYPICAL]


# matplotlib's markers, and the same as SVG paths of a radius near 6.
MARKERS = {
    "o": "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z",
    "s": "M-5.3-5.3h10.6v10.6h-10.6z",
    "^": "M0-6.8L6.2 5H-6.2z",
    "D": "M0-7.2L7.2 0L0 7.2L-7.2 0z",
    "v": "M0 6.8L6.2-5H-6.2z",
    "P": "M-2.3-6.5h4.6v4.2h4.2v4.6h-4.2v4.2h-4.6v-4.2h-4.2v-4.6h4.2z",
    "X": "M-6-3L-3-6L0-3L3-6L6-3L3 0L6 3L3 6L0 3L-3 6L-6 3L-3 0z",
    "*": "M0-7.5L1.8-2.4L7.1-2.3L2.9.9L4.4 6L0 3L-4.4 6L-2.9.9L-7.1-2.3L-1.8-2.4z",
}
FRAME = "#d5d8dd"
LINE = 150  # characters of the caption


def senses_picture(senses: Senses, word: str, path: str | os.PathLike[str], about: str = "") -> None:
    """Write the picture of a word's occurrences, with the size and the most typical words of each cluster.

    Args:
        senses: from senses_of.
        word: for the title.
        path: the file, whose suffix gives the format (.png, .pdf, .svg).
        about: text below the picture, such as the text and the model.

    Raises: ElmoFastError, MissingExtraError without matplotlib.
    """
    texts = [word, about, *(each for words in senses.typical for each in words)]
    write_picture(lambda: picture(senses, word, about), path, texts)


def looks(cluster: int) -> tuple[str, str]:
    """Return colour and marker of a cluster; beyond eight, the same colours with other markers."""
    marker = list(MARKERS)[(cluster + cluster // len(COLOURS)) % len(MARKERS)]
    return COLOURS[cluster % len(COLOURS)], marker


def title_of(senses: Senses, word: str) -> str:
    """Summarize a picture in one line: '"bank": 120 occurrences in 2 clusters'."""
    many, parts = len(senses.labels), len(senses.sizes)
    occurrences = "1 occurrence" if many == 1 else f"{many:,} occurrences"
    return f'"{word}": {occurrences} in {parts} cluster{"s" if parts > 1 else ""}'


def caption(senses: Senses, about: str) -> str:
    """Compose one line: about; what the points are; how well the clusters separate, unless their number was given."""
    sentences = [about, senses.how]
    if senses.silhouettes:
        best = max(senses.silhouettes.values())
        silhouette = f"silhouette {senses.silhouettes.get(len(senses.sizes), best):.2f}"
        silhouette += f", of single clouds at most {senses.chance:.2f}"
        sentences.append(silhouette if len(senses.sizes) > 1 else f"no separate groups: best {silhouette}")
    return "; ".join(filter(None, sentences))


def picture(senses: Senses, word: str, about: str = "") -> Any:
    """Draw matplotlib's Figure of the clusters."""
    figure = new_figure(10, 6)
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.1)
    axes = figure.subplots()
    plain(axes, shown(title_of(senses, word)), grid=None)
    axes.spines[:].set(visible=True, color=FRAME)
    axes.set(xticks=[], yticks=[])
    for cluster, (size, typical) in enumerate(zip(senses.sizes, senses.typical, strict=True)):
        colour, marker = looks(cluster)
        label = f"{size:,}: {', '.join(typical) or 'no typical words'}"
        points = senses.points[senses.labels == cluster]
        axes.scatter(*points.T, s=36, c=colour, marker=marker, alpha=0.8, linewidths=0, label=shown(label))
    title = "occurrences: words most typical of their contexts"
    legend_below(figure, loc="outside lower left", most_columns=1, title=title, title_fontsize=9)
    axes.set_xlabel(textwrap.fill(shown(caption(senses, about)), LINE), fontsize=8, color=GREY, loc="left")
    return figure


WIDTH, HEIGHT, MARGIN = 900.0, 620.0, 24.0


def write_senses_page(
    senses: Senses,
    occurrences: Sequence[Occurrence],
    word: str,
    path: str | os.PathLike[str],
    about: str = "",
    language: str = "en",
) -> None:
    """Write the page of points, coloured by cluster: a legend shows and hides clusters, the pointer shows a sentence.

    The file loads nothing else and forbids the browser to; content of the text is escaped. It works with mouse, touch
    and keyboard.

    Args:
        senses: from senses_of, for these occurrences.
        occurrences: N, whose sentences are shown.
        word: for the title.
        path: the file, .html.
        about: the text and the model, in one line.
        language: of the text, as HTML names it.

    Raises: ElmoFastError.
    """
    if len(occurrences) != len(senses.labels):
        raise ElmoFastError(f"occurrences must be the {len(senses.labels)} that were clustered; got {len(occurrences)}")
    if not os.fspath(path).lower().endswith((".html", ".htm")):
        raise ElmoFastError(f"the page's name must end in .html; got {os.fspath(path)!r}")
    parts = {
        "language": html.escape(language),
        "title": html.escape(title_of(senses, word)),
        "about": html.escape(caption(senses, about) + "."),
        "width": f"{WIDTH:g}",
        "height": f"{HEIGHT:g}",
        "points": _points(senses, occurrences),
        "legend": "\n".join(map(_entry, range(len(senses.sizes)), senses.sizes, senses.typical)),
        "table": "\n".join(
            f'<tr id="row{index}"><td>line {occurrences[index].line + 1}, cluster {senses.labels[index] + 1}</td>'
            f"<td>{_sentence(occurrences[index])}</td></tr>"
            for index in np.argsort(senses.labels, kind="stable")
        ),
    }
    template = importlib.resources.files("elmo_fast.pictures").joinpath("senses_page.html").read_text(encoding="utf-8")
    # Every {{name}} is replaced once: inserted text is not searched again.
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template))


def _sentence(occurrence: Occurrence) -> str:
    """Return the sentence as HTML, the word in bold."""
    words = list(map(html.escape, occurrence.tokens))
    words[occurrence.place] = f"<b>{words[occurrence.place]}</b>"
    return " ".join(words)


def _points(senses: Senses, occurrences: Sequence[Occurrence]) -> str:
    """Return the points as SVG, in pixels, y downwards; both axes are stretched to fill the picture."""
    low, high = senses.points.min(axis=0), senses.points.max(axis=0)
    share = np.divide(senses.points - low, high - low, np.full_like(senses.points, 0.5), where=high > low)
    share[:, 1] = 1 - share[:, 1]
    rows = []
    for index, (x, y) in enumerate(MARGIN + share * (np.array([WIDTH, HEIGHT]) - 2 * MARGIN)):
        cluster = int(senses.labels[index])
        colour, marker = looks(cluster)
        sentence = html.escape(" ".join(occurrences[index].tokens))
        rows.append(
            f'<g class="point c{cluster}" transform="translate({x:.1f} {y:.1f})" style="color:{colour}" '
            f'tabindex="{0 if index == 0 else -1}" role="img" '
            f'aria-label="cluster {cluster + 1}: {sentence}"><path d="{MARKERS[marker]}"/></g>'
        )
    return "\n".join(rows)


def _entry(cluster: int, size: int, typical: Sequence[str]) -> str:
    colour, marker = looks(cluster)
    words = html.escape(", ".join(typical)) or "no typical words"
    return (
        f'<li><button type="button" data-cluster="{cluster}" aria-pressed="true">'
        f'<svg class="c{cluster}" viewBox="-8 -8 16 16" style="color:{colour}" aria-hidden="true">'
        f'<path fill="currentColor" d="{MARKERS[marker]}"/></svg>'
        f'<span><b>Cluster {cluster + 1}</b>: {size:,}<span class="words">{words}</span></span></button></li>'
    )
