"""What `elmo-fast tune` measures and keeps, in this run's precision: choices for the card, and rivals beside ours."""

from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.tuning import tune

TOY = {"filters": [[1, 4], [2, 8]], "n_highway": 1, "dim": 16, "projection_dim": 8, "max_characters_per_token": 12}


def run(session: Session) -> None:
    """Rows of all comparisons; the choices are a note."""
    (precision,) = session.precisions("float16")
    model = ModelConfig(**(TOY if session.quick else {}), dropout=0.0)
    sizes = {"batch": 2, "length": 3, "rounds": 2} if session.quick else {}
    found = tune(session.device, precision, model, compiled=session.compiled, **sizes)
    session.record(*(GpuRow(**row) for row in found.rows))
    session.note("choices", found.choices)
    for why in found.skipped:
        session.skip(why)
