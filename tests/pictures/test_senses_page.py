"""The page in a browser: pointing, tapping and keys show the sentence, the legend hides clusters, text stays text."""

import json
import re

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import Occurrence, write_senses_page
from elmo_fast.pictures.senses import Senses

EVIL = '<img src=x onerror="document.title=1"> </script><script>document.body.innerHTML="gone"</script> &amp; {{data}}'
SENTENCES = ["the left hand", f"{EVIL} left", "he left it", "left ' \" \\ \u2028done"]


@pytest.fixture
def page(tmp_path):
    """A page of four occurrences in two clusters: 0 and 1 at the left, 2 and 3 at the right."""
    points = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    typical = [["hand", "<b>"], []]
    senses = Senses(points, "first & second", np.array([0, 0, 1, 1]), [2, 2], typical, {2: 0.5}, 0.1)
    occurrences = [Occurrence(10 * i, s.split(" ").index("left"), s.split(" ")) for i, s in enumerate(SENTENCES)]
    write_senses_page(senses, occurrences, "left", tmp_path / "page.html", "a <text>")
    return tmp_path / "page.html"


def probed(browse, page, script):
    """Return the result of a script at the page's end, through the document."""
    code = f"""<script>
    const found = (() => {{ {script} }})();
    const box = document.createElement("pre");
    box.id = "probe";
    box.textContent = encodeURIComponent(JSON.stringify(found));
    document.body.append(box);
    </script>"""
    probe = page.with_name("probe.html")
    probe.write_text(page.read_text(encoding="utf-8").replace("</body>", code + "</body>"), encoding="utf-8")
    from urllib.parse import unquote

    document = browse(probe)
    (actual,) = re.findall(r'<pre id="probe">(.*?)</pre>', document, re.DOTALL)
    return json.loads(unquote(actual))


POINT = "const points = document.querySelectorAll('.point'), box = document.getElementById('sentence');"


def test_pointing_shows_the_sentence(browse, page):
    """A mouse enters each point in turn: that sentence stands below the plot, letter by letter."""
    script = (
        POINT
        + """
    const out = [[box.textContent]];
    for (const point of points) {
      point.dispatchEvent(new PointerEvent("pointerenter", {pointerType: "mouse"}));
      const below = box.getBoundingClientRect().top >= document.getElementById("points").getBoundingClientRect().bottom;
      out.push([box.textContent, box.querySelector("b").textContent, below]);
    }
    return out;"""
    )
    before, *actual = probed(browse, page, script)
    assert before == [""]
    for number, (text, word, below) in enumerate(actual):
        assert below
        assert word == "left"
        assert text == f"line {10 * number + 1}, cluster {number // 2 + 1}{SENTENCES[number]}"


def test_keys_step_to_the_next_point_or_the_one_before(browse, page):
    """At the end a key does nothing; one point is in the order of tabs."""
    script = (
        POINT
        + """
    const out = [], press = (key) => {
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
      const stops = document.querySelectorAll(".point[tabindex='0']").length;
      out.push([box.querySelector("small").textContent, stops]);
    };
    points[0].focus();
    for (const key of ["ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "Escape"]) press(key);
    return out;"""
    )
    actual = probed(browse, page, script)
    lines = [text.split(",")[0].removeprefix("line ") for text, _ in actual]
    assert lines == ["11", "21", "31", "31", "21", "21"]
    assert {count for _, count in actual} == {1}


def test_a_tap_beside_a_point_takes_the_nearest_and_one_elsewhere_none(browse, page):
    script = (
        POINT
        + """
    const at = points[2].getBoundingClientRect();
    const tap = (x, y) => document.getElementById("points").dispatchEvent(
      new MouseEvent("click", {bubbles: true, clientX: x, clientY: y}));
    tap(at.left - 300, at.top - 200);
    const first = box.textContent;
    tap(at.left - 8, at.top + 4);
    return [first, box.textContent];"""
    )
    assert probed(browse, page, script) == ["", "line 21, cluster 2he left it"]


def test_the_legend_hides_and_shows_a_cluster(browse, page):
    """Its sizes and words are there; a press hides the points, a second one shows them; keys skip what is hidden."""
    script = (
        POINT
        + """
    const buttons = document.querySelectorAll("#legend button");
    const seen = () => Array.from(points).map((point) => getComputedStyle(point).display !== "none");
    const out = [Array.from(buttons).map((button) => button.innerText)];
    buttons[0].click();
    out.push(seen(), buttons[0].getAttribute("aria-pressed"), points[2].getAttribute("tabindex"));
    buttons[0].click();
    out.push(seen());
    return out;"""
    )
    texts, without, pressed, tab, again = probed(browse, page, script)
    assert [" ".join(text.split()) for text in texts] == ["Cluster 1: 2 hand, <b>", "Cluster 2: 2 no typical words"]
    assert (without, pressed, tab) == ([False, False, True, True], "false", "0")
    assert again == [True] * 4


def test_what_the_text_says_is_never_markup(browse, page):
    """No element comes from a sentence, no script of one runs, and the table has it letter by letter."""
    script = """return [document.images.length, document.title, document.scripts.length,
    Array.from(document.querySelectorAll("td:last-child")).map((cell) => cell.textContent.trim()),
    Array.from(document.querySelectorAll(".point")).map((point) => point.getAttribute("aria-label"))];"""
    images, title, scripts, cells, labels = probed(browse, page, script)
    assert (images, title, scripts) == (0, '"left": 4 occurrences in 2 clusters', 2)  # the probe's is the second
    assert cells == SENTENCES
    assert [label.partition(": ")[2] for label in labels] == SENTENCES


def test_the_page_loads_nothing(page):
    """No address, no import, and a policy under which a browser would refuse one."""
    text = page.read_text(encoding="utf-8")
    assert "Content-Security-Policy\" content=\"default-src 'none';" in text
    assert not re.search(r"https?:|\burl\(|@import|<link|<iframe|\ssrc=(?!x )", text)


def test_what_cannot_be_written_is_refused(tmp_path):
    senses = Senses(np.zeros((1, 2), np.float32), "", np.zeros(1, np.int64), [1], [[]], {})
    one = [Occurrence(0, 0, ["left"])]
    with pytest.raises(ElmoFastError, match=r"must end in \.html; got"):
        write_senses_page(senses, one, "left", tmp_path / "page.png")
    with pytest.raises(ElmoFastError, match="the 1 that were clustered; got 2"):
        write_senses_page(senses, one * 2, "left", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
    write_senses_page(senses, one, "left", tmp_path / "page.html")
