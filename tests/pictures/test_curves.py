"""metrics.jsonl read back, and the picture of it: the right numbers at the right places."""

import json
import math

import numpy as np
import pytest

from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures.curves import draw_curves, picture
from elmo_fast.pretrain.log import RunLog, TrainingProgress
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.step import StepResult
from tests.pictures.conftest import boxes, check_all_text_is_inside

WORDS = 50  # per step


def report(step, perplexity=100.0):
    """A row as progress.TrainingProgress.report makes one."""
    row = {"step": step, "seconds": 1.0, "words": step * WORDS, "words_per_second": 10.0 * step}
    return row | {"loss": math.log(perplexity), "sampled_perplexity": perplexity, "gradient_norm": 1.0 + step}


def heldout(step, forward=30.0):
    words = step * WORDS
    perplexities = {"perplexity": forward, "perplexity_forward": forward, "perplexity_backward": forward / 2}
    return {"event": "heldout", "step": step, "words": words, **perplexities}


def written(folder, *rows, rest=""):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + rest)
    return folder


def test_rows_that_the_trainer_writes_are_read(tmp_path):
    progress = TrainingProgress(10, None)
    with RunLog(tmp_path, lambda line: None) as log:
        for _ in range(2):
            progress.add(StepResult(2.0, 3.0, 0.5, None), WORDS)
            log.write(**progress.report())
        log.write(event="checkpoint", step=2, seconds=1.0, path="somewhere")
    metrics = read_metrics(tmp_path)
    assert metrics.column("words") == ([50, 100], [50, 100])
    assert metrics.column("loss_backward")[1] == [3.0, 3.0]
    assert metrics.column("another") == ([], [])  # a row may lack what a later release writes
    assert (metrics.heldout, metrics.restarts) == ([], [])


def test_what_lies_beyond_a_resumed_step_is_taken_back(tmp_path):
    """The run went on from step 4: its reports and held-out figures of 5 and 6 were computed again."""
    before = [report(2), report(4, 90.0), heldout(4), report(6, 1e9), heldout(6, 1e9)]
    rows = [*before, {"event": "resume", "step": 4}, report(6, 80.0), heldout(6, 20.0), {"event": "resume", "step": 6}]
    metrics = read_metrics(written(tmp_path, *rows))
    assert metrics.column("sampled_perplexity") == ([100, 200, 300], [100.0, 90.0, 80.0])
    assert [row["perplexity"] for row in metrics.heldout] == [30.0, 20.0]
    assert metrics.restarts == [200, 300]


@pytest.mark.parametrize(("last", "points"), [(17, [8, 16]), (19, [8, 16]), (20, [8, 16, 20]), (24, [8, 16, 24])])
def test_a_last_report_on_few_steps_does_not_bend_the_curve(tmp_path, last, points):
    """A run that time ends reports on what is left: fewer than half as many steps as before scatter too much."""
    metrics = read_metrics(written(tmp_path, report(8), report(16), report(last)))
    assert metrics.column("sampled_perplexity")[0] == [step * WORDS for step in points]
    assert metrics.steps[-1]["step"] == last


NOT_WHOLE = [
    '{"step": 6, "wor', "[1]", '{"step": 6}', '{"event": "heldout", "step": 6}', "\0\0", '{"step": "6", "words": 300}',
    '{"event": {}, "step": 6, "words": 300}', "[" * 10_000,
]  # fmt: skip


def test_lines_that_are_not_whole_rows_are_left_out_with_one_warning(tmp_path):
    """As of a run that was killed, at the end or in the middle, where the run then went on."""
    folder = written(tmp_path, report(2), rest="\n".join(NOT_WHOLE))
    rest = b"\n\xff\n" + json.dumps(report(4)).encode()
    (folder / "metrics.jsonl").write_bytes((folder / "metrics.jsonl").read_bytes() + rest)
    with pytest.warns(UserWarning, match=r"metrics.jsonl: left out 9 lines that are no whole rows") as record:
        assert [row["step"] for row in read_metrics(folder).steps] == [2, 4]
    assert len(record) == 1


def test_no_run_and_no_report_are_said(tmp_path):
    with pytest.raises(ElmoFastError, match=r"is not the folder of a run: it has no metrics\.jsonl"):
        read_metrics(tmp_path)
    metrics = read_metrics(written(tmp_path, heldout(1), {"event": "resume", "step": 1}))
    assert (metrics.steps, len(metrics.heldout)) == ([], 1)
    with pytest.raises(ElmoFastError, match="a has no training report yet; there is one every log_interval steps"):
        draw_curves({"a": metrics}, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def lines(axes):
    """label -> (x, y) of the lines that have points and a label."""
    return {
        line.get_label(): tuple(map(list, line.get_data()))
        for line in axes.get_lines()
        if len(line.get_xdata()) and not line.get_label().startswith("_")
    }


def test_the_picture_shows_the_rows(tmp_path):
    """Each curve's points are the rows' numbers over the words, the last held-out figures shown, restarts marked."""
    rows = [report(2), heldout(2), report(4, 80.0), {"event": "resume", "step": 4}, report(6, 70.0), heldout(6, 25.0)]
    metrics = read_metrics(written(tmp_path, *rows))
    perplexity, speed, norm = picture({"a": metrics}).axes
    assert lines(perplexity) == {
        "a: training, sampled softmax": ([100, 200, 300], [100.0, 80.0, 70.0]),
        "a: held-out forward, 25.0 at the end": ([100, 300], [30.0, 25.0]),
        "a: held-out backward, 12.5 at the end": ([100, 300], [15.0, 12.5]),
        "a: restart": ([200, 200], [0, 1]),
    }
    assert [list(line.get_data()[1]) for line in speed.get_lines()] == [[20.0, 40.0, 60.0], [0, 1]]
    assert [list(line.get_data()[1]) for line in norm.get_lines()] == [[3.0, 5.0, 7.0], [0, 1]]
    for axes in (perplexity, speed, norm):
        assert [200, 200] in [list(line.get_xdata()) for line in axes.get_lines()]  # the restart
        assert axes.get_xscale() == "log"
        assert axes.get_xlim() == perplexity.get_xlim()
        assert (axes.get_xlabel() == "words seen, logarithmic") == (axes is not speed)
    assert (perplexity.get_xscale(), perplexity.get_yscale(), norm.get_yscale()) == ("log", "log", "log")
    assert (speed.get_yscale(), speed.get_ylim()[0]) == ("linear", 0)


def test_the_legend_of_runs_side_by_side_shows_what_is_drawn(tmp_path):
    """A colour for each run, restarts included; the legend is below all axes and within the picture."""
    rows = [report(2), heldout(2), report(4), {"event": "resume", "step": 4}, report(6)]
    long = "runs/" + "a long name of a run " * 6
    runs = {name: read_metrics(written(tmp_path / name[-1], *rows)) for name in ("a", "b", long)}
    figure = picture(runs)
    for axes in figure.axes:
        assert len({line.get_color() for line in axes.get_lines()}) == 3
    curves = [line for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    (legend,) = figure.legends
    looks = [(line.get_color(), line.get_linestyle(), line.get_alpha()) for line in curves]
    assert looks == [(line.get_color(), line.get_linestyle(), line.get_alpha()) for line in legend.get_lines()]
    shown = [text.get_text() for text in legend.get_texts()]
    assert [name[-7:] for name in shown] == [line.get_label()[-7:] for line in curves]
    check_all_text_is_inside(figure)
    below, *axes = boxes(figure, [legend, *figure.axes])
    assert below.y1 <= min(each.y0 for each in axes)


NO_NORM = [report(2) | {"gradient_norm": 0.0}, report(4) | {"gradient_norm": None}]
NOTHING_NAMED = [{name: value for name, value in report(2).items() if name != "sampled_perplexity"}]
OUT_OF_RANGE = [heldout(0), report(2, 1e30), report(3), report(4, math.nan)]


@pytest.mark.parametrize("rows", [[report(1)], OUT_OF_RANGE, NO_NORM, NOTHING_NAMED])
def test_first_reports_and_numbers_out_of_range_plot_without_warning(tmp_path, rows):
    draw_curves({"a": read_metrics(written(tmp_path, *rows))}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_the_command_draws_and_names_the_file(tmp_path, capsys):
    from matplotlib.image import imread

    for name in "ab":
        written(tmp_path / name, report(2), report(4), heldout(4))
    assert main(["plot", f"{tmp_path}/a/"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/a/curves.png\n"
    alone = imread(tmp_path / "a" / "curves.png")
    assert alone.shape[1] == 1430
    output = tmp_path / "both.PNG"
    assert main(["plot", str(tmp_path / "a"), "--also", str(tmp_path / "b"), "--output", str(output)]) == 0
    assert not np.array_equal(imread(output, format="png"), alone)
