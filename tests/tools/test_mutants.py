"""tools/mutants: what is changed and what is not, that every source has tests, and that a run is judged as it ended."""

import json
import pathlib
import subprocess
import sys

import pytest

from tools.mutants import judge, trial
from tools.mutants.__main__ import with_first_draws
from tools.mutants.plan import SOURCES, Plan
from tools.mutants.sites import Mutation, cpp_mutations, python_mutations

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVERYTHING = ["amx_bf16"]  # nothing is left out for want of it

CPP = """\
#include <a.h> // 1 < 2
template <typename T, int N = 4>
T f(T* x, int n) {  // n + 1 < 2
  for (int i = 0; i < n; ++i) x[i] += 2.5f * g("a < b", 'c');
  if (n == 3 && n > 0) return true;
  drop(x);
}
"""
PYTHON = '''\
"""One < two."""
from a import b

def f(x: int | None, n: int = 3) -> int | str:
    """Of 1 < 2."""
    if n < 3 and not x:
        raise ValueError(f"{n + 1} or {n} < 3")
    g(x)
    return n + 1
'''


def changes(found, line):
    return {each.after.strip() for each in found if each.line == line}


def test_cpp_is_changed_in_operators_numbers_conditions_and_statements_alone():
    found = cpp_mutations("a.cpp", CPP, [])
    assert {each.line for each in found} == {4, 5, 6}
    assert changes(found, 5) == {
        "if (n != 3 && n > 0) return true;",
        "if (n == 3 || n > 0) return true;",
        "if (n == 3 && n >= 0) return true;",
        "if (n == 4 && n > 0) return true;",
        "if (n == 3 && n > 1) return true;",
        "if (n == 3 && n > 0) return false;",
        "if (!(n == 3 && n > 0)) return true;",
    }
    assert changes(found, 6) == {";"}
    assert "for (int i = 0; i < n; ++i) x[i] -= 2.5f * g(\"a < b\", 'c');" in changes(found, 4)
    assert not any("a <= b" in each.after for each in found)


def test_python_is_changed_where_it_computes_alone():
    found = python_mutations("a.py", PYTHON)
    assert {each.line for each in found} == {4, 6, 8, 9}
    assert changes(found, 4) == {"def f(x: int | None, n: int = 4) -> int | str:"}
    assert changes(found, 6) == {
        "if n <= 3 and not x:",
        "if n < 4 and not x:",
        "if n < 3 or not x:",
        "if n < 3 and x:",
        "if (not (n < 3 and not x)):",
    }
    assert changes(found, 8) == {"pass"}
    assert changes(found, 9) == {"return n - 1", "return n + 2", "return n + 0"}
    for each in found:
        lines = PYTHON.splitlines()
        lines[each.line - 1] = each.after
        compile("\n".join(lines), "a.py", "exec")


def test_every_source_has_tests_that_exist_or_is_left_out_with_a_reason():
    plan = Plan(ROOT, EVERYTHING)
    changed = {file for file, _ in plan.mutations()}
    assert {"csrc/common/gemm.cpp", "csrc/common/tiles.cpp", "elmo_fast/ops/highway/op.py"} <= changed
    for file in changed:
        assert all((ROOT / test.partition("::")[0]).is_file() for test in plan.tests_of(file)), file
    assert all(list(ROOT.glob(pattern)) for pattern in SOURCES)
    assert all(each["why"] and any(list(ROOT.glob(pattern)) for pattern in each["files"]) for each in plan.left_out)


def test_a_draw_is_the_same_for_the_same_seed():
    plan = Plan(ROOT, EVERYTHING)
    first = plan.drawn(0)
    assert first == plan.drawn(0) != plan.drawn(1)
    assert len({(each.file, each.line) for each in first}) == len(first) > 2000


def test_a_line_more_leaves_the_draw_of_the_others_as_it_is(tmp_path):
    (tmp_path / "table.toml").write_text("left_out = []\n[tests]\n", encoding="utf-8")
    (tmp_path / "equivalents.toml").write_text("", encoding="utf-8")
    (tmp_path / "csrc").mkdir()
    lines = [f"  x = y + {i};\n" for i in range(20)]
    (tmp_path / "csrc" / "a.cpp").write_text("".join(lines), encoding="utf-8")
    before = Plan(tmp_path, [], tmp_path).drawn(0)
    (tmp_path / "csrc" / "a.cpp").write_text("  new = 1 + y;\n" + "".join(lines), encoding="utf-8")
    after = Plan(tmp_path, [], tmp_path).drawn(0)
    assert [each.after for each in after if "new" not in each.before] == [each.after for each in before]
    assert len(after) == 21


def test_what_was_found_is_known_again_until_its_source_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    (tmp_path / "a.cpp").write_text("x = 1;\n", encoding="utf-8")
    (tmp_path / "table.toml").write_text('left_out = []\n[tests]\n"a.cpp" = ["test_a.py"]\n', encoding="utf-8")
    (tmp_path / "equivalents.toml").write_text("", encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("1\n", encoding="utf-8")
    plan, path = Plan(tmp_path, [], tmp_path), tmp_path / "journal"
    killed, survived = Mutation("a.cpp", 1, "x = 1;", "x = 2;"), Mutation("a.cpp", 1, "x = 1;", ";")
    first = trial.Journal(path, plan)
    first.add(tmp_path, killed, trial.Outcome(trial.KILLED, "test_a"))
    first.add(tmp_path, survived, trial.Outcome(trial.SURVIVED))
    again = trial.Journal(path, plan)
    assert again.known(killed) == trial.Outcome(trial.KILLED, "test_a")
    assert again.known(survived) == trial.Outcome(trial.SURVIVED)
    (tmp_path / "tests" / "test_a.py").write_text("2\n", encoding="utf-8")
    assert again.known(killed) is not None
    assert again.known(survived) is None
    (tmp_path / "a.cpp").write_text("x = 1;\ny = 2;\n", encoding="utf-8")
    assert again.known(killed) is None


def test_an_explanation_of_a_line_that_is_gone_is_refused(tmp_path):
    (tmp_path / "table.toml").write_text("left_out = []\n[tests]\n", encoding="utf-8")
    (tmp_path / "a.cpp").write_text("  x = 1;\n", encoding="utf-8")
    entry = '[[equivalent]]\nfile = "a.cpp"\nbefore = "x = {};"\nafter = "x = 2;"\nwhy = "x is not read"\n'
    (tmp_path / "equivalents.toml").write_text(entry.format(1), encoding="utf-8")
    Plan(tmp_path, [], tmp_path)
    (tmp_path / "equivalents.toml").write_text(entry.format(3), encoding="utf-8")
    with pytest.raises(ValueError, match=r"stale: a\.cpp has no line 'x = 3;'"):
        Plan(tmp_path, [], tmp_path)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("body", "by"),
    [
        ("pass", ""),
        ("assert False", "test_it.py::test_it"),
        ("import os; os.abort()", "signal 6"),
        ("while True: pass", "signal 24"),
    ],
    ids=["passes", "fails", "crashes", "hangs"],
)
def test_a_run_is_judged_as_it_ended(tmp_path, body, by):
    (tmp_path / "build").mkdir()
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n", encoding="utf-8")
    verdict = judge.run(tmp_path, ["test_it.py"], limit=0 if by == "signal 24" else None)
    assert (verdict.passed, verdict.by) == (by == "", by)


def test_a_run_imports_no_mutant_before_it_judges(tmp_path):
    """A process that has imported elmo_fast would judge the code that it has, not the changed one."""
    code = (
        "import sys, tools.mutants.__main__ as run\n"
        "run.outcomes_of = lambda *_: print('imported:', 'elmo_fast' in sys.modules) or iter(())\n"
        "run.main()"
    )
    options = ["--folder", str(tmp_path), "--out", str(tmp_path / "out.json")]
    done = subprocess.run([sys.executable, "-c", code, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "imported: False" in done.stdout


def test_a_first_draw_adds_its_score_and_leaves_the_result(tmp_path):
    """Drawn again it replaces its own line; a later run keeps it; without a result there is nothing to add to."""
    out = tmp_path / "out.json"
    run = {"seed": 0, "date": "d", "commit": "c", "judged": 4, "killed": 3, "survivors": [], "equivalent": [{}]}
    draw = {**run, "seed": 7, "killed": 2}
    with pytest.raises(SystemExit, match="run without it first"):
        with_first_draws(draw, out, "csrc/", True)
    for found, first in ((run, False), ({**draw, "killed": 1}, True), (draw, True), ({**run, "killed": 4}, False)):
        out.write_text(json.dumps(with_first_draws(found, out, "csrc/", first)), encoding="utf-8")
    content = json.loads(out.read_text(encoding="utf-8"))
    assert (content["seed"], content["killed"]) == (0, 4)
    ((line),) = content["first_draws"]
    assert (line["seed"], line["killed"], line["explained"], line["only"]) == (7, 2, 1, "csrc/")
