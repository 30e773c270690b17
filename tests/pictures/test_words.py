"""Words in the plane: a point each, labels on the points, what is left out said."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import words_picture
from elmo_fast.pictures.reduction import Plane
from elmo_fast.pictures.words import picture
from tests.pictures.conftest import boxes

SIGNATURES = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
SIGNS = "\U0001bc00\U0001bc01\U0001bc02"  # of a shorthand that hardly a font has


def random_words(count, width=12):
    rng = np.random.default_rng(0)
    return [f"word{k}" for k in range(count)], rng.normal(size=(count, width)).astype(np.float32)


def test_labels_as_drawn_do_not_overlap_and_stand_by_their_points():
    words, _ = random_words(80)
    figure, placement = picture(words, Plane(np.random.default_rng(1).normal(size=(80, 2)), "how"), 80, "title")
    (axes,) = figure.axes
    pixels, drawn = dict(zip(words, axes.transData.transform(placement.points), strict=True)), boxes(figure, axes.texts)
    for i, (text, box) in enumerate(zip(axes.texts, drawn, strict=True)):
        (x, y), nearest = pixels[text.get_text()], np.clip(pixels[text.get_text()], box.min, box.max)
        assert np.hypot(*(nearest - (x, y))) < 25
        assert not any(box.overlaps(other) for other in drawn[:i])


def test_the_picture_says_what_it_leaves_out():
    """Labels without room, and words beyond most_labels, are counted below the picture."""
    words, _ = random_words(60)
    points = np.random.default_rng(1).normal(size=(60, 2)).astype(np.float32)
    points[:40] = points[:40] * 1e-6
    figure, placement = picture(words, Plane(points, "how"), 50, "title")
    assert placement.omitted
    message = figure.texts[0].get_text()
    assert (
        message
        == f"how; labels left out for lack of room: {len(placement.omitted)} of 50; further points without a label: 10"
    )
    assert placement.labelled + len(placement.omitted) == 50


def test_an_analogy_is_parallel_arrows(tmp_path):
    """From king to man as from queen to woman; drawn to scale, and the caption has the cosine of all dimensions."""
    matrix = np.array([[3, 1, 0], [3, 0, 0], [0, 1, 3], [0, 0, 3]], np.float32)
    words = ["king", "man", "queen", "woman"]
    plane = Plane(np.array([[0, 1], [0, 0], [4, 1], [4, 0]], np.float32), "how")
    figure, _ = picture(words, plane, 4, "title", arrows=True)
    (axes,) = figure.axes
    drawn = [(text.xyann, text.xy) for text in axes.texts if not text.get_text()]
    assert [np.subtract(end, start).tolist() for start, end in drawn] == [[0, -1], [0, -1]]
    unit = np.ptp(axes.transData.transform([(0, 0), (1, 1)]), axis=0)
    assert unit[0] == pytest.approx(unit[1])
    words_picture(words, matrix, tmp_path / "a.svg", arrows=True)
    assert (tmp_path / "a.svg").exists()
    for wrong in ({"method": "tsne"}, {"words": words[:3], "matrix": matrix[:3]}):
        with pytest.raises(ElmoFastError, match="arrows need an even number of words"):
            words_picture(**{"words": words, "matrix": matrix, "path": tmp_path / "b.svg", "arrows": True} | wrong)
    with pytest.raises(ElmoFastError, match=f"vectors of {words[2]!r} and {words[3]!r} have the same"):
        words_picture(words, matrix[[0, 1, 2, 2]], tmp_path / "b.svg", arrows=True)


def test_a_font_that_has_the_characters_is_chosen(tmp_path, monkeypatch):
    """Without a warning: STIX comes with matplotlib; other scripts are drawn in the default font alone."""
    words, matrix = random_words(4)
    families, save = [], Figure.savefig

    def saved(figure, *words, **named):
        families.append(figure.axes[0].texts[0].get_fontfamily())
        save(figure, *words, **named)

    monkeypatch.setattr(Figure, "savefig", saved)
    for word in ("\u210a", "Ελλάδα"):
        words_picture([word, *words[1:]], matrix, tmp_path / "a.png", "pca")
    assert list(map(len, families)) == [2, 1]


def test_characters_that_no_font_has_are_named_in_one_line(tmp_path):
    words, matrix = random_words(4)
    with pytest.warns(UserWarning, match="characters") as warned:  # nor one of matplotlib for each glyph
        words_picture([SIGNS + "ab", *words[1:]], matrix, tmp_path / "a.png", "pca")
    (message,) = (str(each.message) for each in warned)
    assert message.startswith(f"no installed font has 3 of the picture's characters ({SIGNS}): they are drawn as boxes")
    assert warned[0].filename == __file__
    assert (tmp_path / "a.png").stat().st_size > 5000


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_words_are_the_same_file(tmp_path, kind):
    """Twice, byte for byte; a dollar sign in a word is no formula, and a vector of zeros no warning."""
    words, matrix = random_words(12)
    words[0], words[1], matrix[2] = "$a", "x_$b$", 0
    for name in "ab":
        words_picture(words, matrix, tmp_path / f"{name}.{kind}", "pca")
    first = (tmp_path / f"a.{kind}").read_bytes()
    assert len(first) > 5000
    assert first.startswith(SIGNATURES[kind])
    if kind != "svg":  # its identifiers are random
        assert first == (tmp_path / f"b.{kind}").read_bytes()


def test_only_directions_count(tmp_path):
    """A vector times 10 is the same point."""
    words, matrix = random_words(20)
    scaled = matrix * np.arange(1, 21, dtype=np.float32)[:, None]
    one = words_picture(words, matrix, tmp_path / "a.png", "pca").points
    np.testing.assert_allclose(one, words_picture(words, scaled, tmp_path / "a.png", "pca").points, atol=1e-4)


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    words, matrix = random_words(5)
    with pytest.raises(ElmoFastError, match=r"matrix must be \[4, D\], a row per word; got \[5, 12\]"):
        words_picture(words[:4], matrix, tmp_path / "a.png")
    with pytest.raises(ElmoFastError, match="must end in one of"):
        words_picture(words, matrix, tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []
