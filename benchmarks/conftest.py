"""Set-up of the benchmarks: `pytest benchmarks` (or `make bench`) runs them with pytest-benchmark.

A benchmark is a function `bench_*` with a parameter `side`, and times one call with the fixture `timed`. Each is run
in several turns: all sides of a comparison in the first turn, then all again in the second, so that whatever disturbs
the machine disturbs them alike. `python -m benchmarks.table` reduces the turns to medians and writes the tables.
"""

import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from benchmarks import inputs, machine
from elmo_fast.errors import PerformanceWarning
from tests.support.extension import refuse_old_extension


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("elmo_fast")
    group.addoption("--quick", action="store_true", help="toy sizes, to see that the benchmarks run")
    group.addoption("--case", nargs="+", help="run these cases only: NAME of bench_NAME.py, or of a mark case(NAME)")
    group.addoption("--turns", type=int, help="turns of each comparison; default: what each benchmark asks for")
    group.addoption("--text", type=pathlib.Path, help="one sentence per line; default: see benchmarks/inputs.py")
    group.addoption("--seconds", type=float, help="skip the benchmarks that would begin later; default: none")
    group.addoption("--device", default="cpu", help="device of bench_gpu.py: cuda, or cpu with --quick")
    group.addoption(
        "--peer-python",
        default=os.environ.get("ELMO_FAST_PEER_PYTHON") or None,
        help="a Python with AllenNLP 2.10.1; default: $ELMO_FAST_PEER_PYTHON; without it that side is skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    refuse_old_extension(machine.ROOT)
    about = machine.describe("make bench", gpu=config.getoption("device").startswith("cuda"))
    config.stash[ABOUT] = about | {"quick": config.getoption("quick")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Add the parameter `turn`, as often as the function's mark `turns(N)` says (once without it, or with --quick)."""
    if "turn" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("turns")
        turns = 1 if mark is None or metafunc.config.getoption("quick") else mark.args[0]
        metafunc.parametrize("turn", range(metafunc.config.getoption("turns") or turns))


def cases_of(item: pytest.Item) -> tuple[str, ...]:
    """Return the names of a benchmark's result files: its mark `case(NAME, ...)`, or NAME of bench_NAME.py."""
    mark = item.get_closest_marker("case")
    return (item.path.stem.removeprefix("bench_"),) if mark is None else mark.args


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the cases that are asked for, and order the benchmarks of a comparison by turn, then by side."""
    if cases := config.getoption("case"):
        chosen = [item for item in items if set(cases_of(item)) & set(cases)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
    groups: dict[Any, int] = {}
    keys = {}
    for item in items:
        values = item.callspec.params if hasattr(item, "callspec") else {}
        variant = str({name: value for name, value in values.items() if name not in ("turn", "side")})
        comparison = item.path, getattr(item, "originalname", item.name), variant
        keys[item] = groups.setdefault(comparison, len(groups)), values.get("turn", 0)
    items.sort(key=keys.__getitem__)


BEGIN = time.monotonic()
ABOUT = pytest.StashKey[dict[str, Any]]()
SKIPPED = pytest.StashKey[dict[str, list[str]]]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what begins too late: a run that is stopped from outside would leave no results."""
    seconds = item.config.getoption("seconds")
    if seconds is not None and time.monotonic() - BEGIN > seconds:
        pytest.skip(f"{item.name.split('[')[0]}: no time was left for some of it")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = (yield).get_result()
    if report.skipped and isinstance(report.longrepr, tuple):
        reasons = item.config.stash.setdefault(SKIPPED, {}).setdefault(cases_of(item)[0], [])
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in reasons:
            reasons.append(reason)


def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    # Not in machine_info, which --benchmark-compare wants to be equal: the commit and the load differ.
    output_json |= {"elmo_fast": config.stash[ABOUT], "skipped": config.stash.get(SKIPPED, {})}


class Timed:
    """Times this test's side in this turn, and keeps what a reader of the table must know of it."""

    def __init__(self, benchmark: Any, request: pytest.FixtureRequest) -> None:
        self._benchmark, self.quick = benchmark, request.config.getoption("quick")
        side = request.node.callspec.params.get("side", "elmo_fast")
        benchmark.extra_info.update(case=cases_of(request.node)[0], side=str(side), figures=[], notes={})

    def __call__(
        self,
        variant: str,
        call: Callable[[], Any],
        *,
        amount: float = 1000.0,
        unit: str = "ms",
        threads: int = 1,
        rounds: int = 1,
        warmup: int = 1,
        against: str | None = None,
    ) -> Any:
        """Time `call` and return its last result.

        unit: of `amount` divided by seconds if it ends in "/s", of `amount` times seconds otherwise. against: the side
        that this one is compared with. Rounds are timed within one turn.
        """
        self._benchmark.extra_info.update(variant=variant, unit=unit, amount=amount, threads=threads, against=against)
        self._benchmark.group = variant
        rounds, warmup = (1, 0) if self.quick else (rounds, warmup)
        return self._benchmark.pedantic(call, rounds=rounds, warmup_rounds=warmup, iterations=1)

    def figure(self, variant: str, side: str, value: float, unit: str, **more: Any) -> None:
        """Add a row of something other than time: a perplexity, a share, a size. case=NAME names a different case."""
        row = {"variant": variant, "side": side, "value": value, "unit": unit, **more}
        self._benchmark.extra_info["figures"].append(row)

    def note(self, name: str, value: Any) -> None:
        """Add a line below the table."""
        self._benchmark.extra_info["notes"][name] = value

    def error(self, value: float, reference: str) -> None:
        """Add the largest difference to the result of `reference`."""
        self._benchmark.extra_info.update(error=machine.significant(value, 2), error_to=reference)


@pytest.fixture
def timed(benchmark: Any, request: pytest.FixtureRequest, turn: int) -> Timed:
    return Timed(benchmark, request)


@pytest.fixture(autouse=True)
def _set_up() -> Iterator[None]:
    """Run on one thread; other libraries' warnings are nothing, a slow path of elmo_fast is an error."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PerformanceWarning)
        yield


@pytest.fixture(scope="session")
def quick(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("quick")


@pytest.fixture(scope="session")
def text(request: pytest.FixtureRequest) -> inputs.Text:
    return inputs.read_text(request.config.getoption("text"))
