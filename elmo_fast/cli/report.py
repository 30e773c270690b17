"""`elmo-fast report`: does ELMo help on this data? The paper's tables and figures on a small scale."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.report.plan import EXPERIMENTS, ReportSettings


def build_parser() -> Any:
    """Every field of ReportSettings as a flag; --seeds is how many: 0, 1, ... It runs on the CPU."""
    parser = _common.new_parser(
        "report",
        "Measures whether ELMo helps on your data: trains small taggers or classifiers with and without it, with "
        "several seeds, and writes the paper's tables and figures on a small scale, report.md with pictures. To resume "
        "a stopped report, run the same command again. The experiments compare: "
        + "; ".join(f"{name}: {what}" for name, what in EXPERIMENTS.items())
        + ".",
        shared=("threads",),
    )
    parser.fields(ReportSettings)
    return parser


def run(arguments: Any) -> int:
    from elmo_fast.report.run import write_report

    settings = ReportSettings(**_common.values_of(arguments, ReportSettings))
    _common.set_up(arguments)
    print(write_report(settings, report=_common.logger().info))
    return 0
