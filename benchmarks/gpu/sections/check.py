"""The check that the first use of each kernel makes on the card, of every kernel in every precision."""

from benchmarks.gpu.session import Session
from elmo_fast.op_choices import PRECISIONS
from elmo_fast.ops import _dispatch, _first_use, _verdicts


def run(session: Session) -> None:
    """Notes what was checked; what is refused is a failure. Later sections use the verdicts."""
    for precision in PRECISIONS:
        for op in _dispatch.op_names():
            for backend in (name for name in _dispatch.backends_of(op) if name in _first_use.CHECKED):
                _first_use.refusal(op, backend, session.device, precision)
    lines = _verdicts.report(session.device)
    if not lines:
        session.skip("nothing is checked without a GPU")
    for line in lines:
        if line.startswith("refused: "):
            session.fail("check", line)
    session.note("check", lines[:1])
