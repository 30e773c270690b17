"""The notebooks run from top to bottom, and still show what they say."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def printed(name, folder):
    """Return the output of the code cells, run one after the other in an empty folder."""
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    script = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    commands = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # elmo-fast of this Python
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "Agg", "PATH": commands},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sentences_of_a_topic_lie_together(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    text = printed("sentence_vectors", tmp_path)
    assert float(re.search(r"Rand index ([\d.]+)", text)[1]) > 0.25
    accuracy = {name: float(number) for name, number in re.findall(r"(\S+): accuracy ([\d.]+)", text)}
    assert accuracy["mini"] > 0.6 > accuracy["TF-IDF"] > 0.4, "docs/which_model.md has these figures"


@pytest.mark.slow
def test_unusual_lines_of_a_log_have_the_largest_losses(tmp_path):
    text = printed("log_anomalies", tmp_path)
    assert int(re.search(r"(\d) of 6 anomalies are among the ten worst", text)[1]) >= 4
