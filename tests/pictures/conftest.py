"""A toy model, a text in which one word has two uses, and a browser."""

import shutil
import subprocess

import pytest

from elmo_fast import ElmoEmbedder
from tests.support.weights import make_weights


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory):
    """(options_file, weight_file) of a random two-layer model with D = 8."""
    return tuple(map(str, make_weights(tmp_path_factory.mktemp("model"))))


def boxes(figure, artists):
    """The extents of artists in pixels, as Agg draws the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return [artist.get_window_extent(canvas.get_renderer()) for artist in artists]


def check_all_text_is_inside(figure):
    """No text of a figure, of its legends least of all, ends outside it; labels of ticks off the axes are not drawn."""
    from matplotlib.text import Text

    unseen = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and id(text) not in unseen]
    for text, box in zip(texts, boxes(figure, texts), strict=True):
        inside = min(box.x0, box.y0) >= -1 and box.x1 <= figure.bbox.width + 1 and box.y1 <= figure.bbox.height + 1
        assert inside, (text.get_text(), box, figure.bbox)


@pytest.fixture(scope="session")
def embedder(toy_model):
    """Its embedder, which carries no state."""
    return ElmoEmbedder(*toy_model, stateful=False)


@pytest.fixture(scope="session")
def browse(tmp_path_factory):
    """Chromium: browse(path) is the document after its scripts."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium), so that no page can be opened")
    profile = tmp_path_factory.mktemp("profile")

    def run(path):
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1200,900"]
        command = [chromium, *flags, "--dump-dom", path.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
