"""Resuming a run: which checkpoint, and whether it is one of this run."""

import pathlib
from collections.abc import Callable
from dataclasses import asdict

from elmo_fast.checkpoints import CHECKPOINTS, saved_steps
from elmo_fast.corpus import Corpus
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.json_files import METRICS_FILE
from elmo_fast.pretrain.checkpoint import TrainingState, read_training_state
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig


def find_checkpoint_to_resume(config: PretrainConfig, report: Callable[[str], None]) -> TrainingState | None:
    """The checkpoint that `resume` asks for: the newest whole one of save_dir, a named one, or none.

    A named one counts only while save_dir has no checkpoints of its own: afterwards the newest of those is used, so
    that the same command resumes the run. A damaged one is reported by name, and the one before is used.

    Raises ElmoFastError when all are damaged, the named one is, or the folder holds a run and `resume` is
    "never".
    """
    folder, resume = pathlib.Path(config.run.save_dir), config.run.resume
    saved = saved_steps(folder)
    if resume not in ("auto", "never") and not saved:
        return read_training_state(pathlib.Path(resume))
    if resume == "never":
        if saved or (folder / METRICS_FILE).exists():
            raise ElmoFastError(
                f"save_dir {folder} already holds a run; give another folder, move that one away, or resume it by "
                "--resume auto"
            )
        return None
    if saved and resume != "auto":
        report(f"resume {folder} has checkpoints of its own, which count before {resume}")
    for _, path in reversed(saved):
        try:
            return read_training_state(path)
        except CheckpointError as error:
            report(f"NOT USED {path}: {error}")
    if saved:
        raise ElmoFastError(
            f"{folder / CHECKPOINTS}: wanted a checkpoint that can be used, found {len(saved)} that cannot (see above);"
            " restore one, or give another save_dir"
        )
    return None


def check_same_run(resumed: TrainingState, config: PretrainConfig, corpus: Corpus) -> bool:
    """Whether the run resumes at the checkpoint's position; False when it starts another text from its beginning.

    Raises ElmoFastError that names what differs and has not been allowed to.
    """
    at, optimizer = resumed.position, config.optimizer
    pairs = {
        "batch_size": (at.rows, optimizer.batch_size),
        "unroll_steps": (at.unroll_steps, optimizer.unroll_steps),
        "seed": (at.seed, config.run.seed),
        "shuffle": (at.shuffle, config.data.shuffle),
        "optimiser": (at.optimiser, optimizer.optimiser),
        "loss": (at.loss, optimizer.loss),
    }
    # Fields that the run did not know yet had their defaults.
    was, now = asdict(ModelConfig()) | at.model, asdict(config.model)
    pairs |= {name: (was[name], now[name]) for name in now}
    differing = [
        f"{name} was {before!r}, now {wanted!r}" for name, (before, wanted) in pairs.items() if before != wanted
    ]
    if differing:
        raise ElmoFastError(
            f"the checkpoint after step {at.step} is of another run: {'; '.join(differing)}; give what it was, or "
            "start a new run from its weights: --init_from CHECKPOINT with another save_dir"
        )
    if at.fingerprint == corpus.fingerprint:
        return True
    if config.run.allow_other_corpus and config.run.resume not in ("auto", "never"):
        if at.vocabulary != corpus.vocabulary.digest:
            raise ElmoFastError(
                "allow_other_corpus takes another text in the same vocabulary, and the words to predict have changed; "
                "prepare the text with the vocabulary of the run (--vocab_file), or start a new run by --init_from"
            )
        return False
    raise ElmoFastError(
        f"the checkpoint after step {at.step} was trained on another corpus or vocabulary (fingerprint "
        f"{at.fingerprint[:12]}, now {corpus.fingerprint[:12]}); to resume with this text give another "
        "save_dir, --resume CHECKPOINT and --allow_other_corpus true (same vocabulary), or --init_from CHECKPOINT "
        "(another vocabulary)"
    )
