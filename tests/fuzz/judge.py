"""Allowed outcomes of an attack; everything else is a finding."""

import contextlib
import re
import traceback
import warnings
from collections.abc import Iterator

from elmo_fast.errors import ElmoFastError


class Wrong(AssertionError):
    """A wrong result, or an answer that is not one sentence."""


@contextlib.contextmanager
def may_refuse(*also: type[BaseException]) -> Iterator[None]:
    """Let errors of one sentence pass: ElmoFastError, OSError, and those that the docstring names (`also`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ElmoFastError, *also) as error:
            if isinstance(error, ElmoFastError):
                sentence(str(error))
        except OSError as error:
            # h5py and others raise bare OSErrors of C's: those are not elmo_fast's sentences.
            if error.errno is None:
                raise


def sentence(text: str, most: int = 4000) -> None:
    """Raise Wrong unless `text` is one line that a person can read."""
    if not text.strip() or len(text) > most or "Traceback" in text:
        raise Wrong(f"no sentence: {text[:300]!r} ({len(text)} characters)")


def finding(error: BaseException) -> dict[str, str]:
    """Return the finding: its kind, its location (findings with both alike are one), and its text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/elmo_fast/" in frame.filename] or frames[-1:]
    where = f"{own[-1].filename.rpartition('/elmo_fast/')[2]}:{own[-1].name}" if own else "?"
    if isinstance(error, Wrong):
        message = re.sub(r"\S*/case/", "", str(error))  # a process's folder distinguishes no findings
        kind, where = "wrong", re.sub(r"[\d\[\]{}()'\"]+", "#", message)[:70]
    else:
        kind = type(error).__name__
    return {"kind": kind, "where": where, "text": "".join(traceback.format_exception(error))[-6000:]}
