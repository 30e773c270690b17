"""What a section is given: the device, the sizes, its time, the ceilings; and where it puts what it finds."""

import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks import results, texts
from benchmarks.machine import ROOT
from benchmarks.results import Report
from elmo_fast.ops import _dispatch, _triton
from elmo_fast.tuning.clock import Clock


class Settings(NamedTuple):
    """What the command line asked for.

    quick: toy sizes, to see that it runs; run: by which the files of one run know each other; text: a file of
    sentences, or None for the default.
    """

    device: str
    quick: bool
    out: pathlib.Path
    run: str
    text: pathlib.Path | None = None

    @property
    def rehearsal(self) -> bool:
        """Whether figures of this run mean anything: not without a GPU, and not at toy sizes."""
        return self.quick or not self.device.startswith("cuda")


class Session:
    """One section's run. Whatever is recorded is written at once, so that a section that is cut keeps what it found."""

    def __init__(self, section: str, settings: Settings, about: dict[str, Any], seconds: float) -> None:
        self.section, self.settings, self.about = section, settings, about
        self.device, self.quick = torch.device(settings.device), settings.quick
        self.report = Report()
        self._end = time.monotonic() + seconds
        self._clock: Clock | None = None
        self._ceilings: dict[str, float] | None = None
        # Of its own: a capture that fails can leave torch's default generator of the GPU unusable.
        self._generator = torch.Generator(self.device).manual_seed(0)
        torch.manual_seed(0)

    @property
    def clock(self) -> Clock:
        """The clock of the device."""
        self._clock = self._clock or Clock(self.device)
        return self._clock

    def noise(self, *shape: int) -> Tensor:
        """Standard normal numbers on the device."""
        return torch.randn(*shape, device=self.device, generator=self._generator)

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers between 0 and 1 on the device."""
        return torch.rand(*shape, device=self.device, generator=self._generator, dtype=dtype)

    def left(self) -> float:
        """Seconds until this section should have ended."""
        return self._end - time.monotonic()

    def late(self, what: str, seconds: float = 0.0) -> bool:
        """Whether too little time is left for `what`; then it is said that it was left out."""
        if self.left() > seconds:
            return False
        self.report.skipped.append(f"{what}: no time was left")
        self.save()
        return True

    def record(self, *rows: results.Row) -> None:
        """Keeps rows."""
        self.report.rows += rows
        self.save()

    def fail(self, what: str, why: object) -> None:
        """Keeps a failure, in one line."""
        words = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
        self.report.failures.append(f"{what}: {' '.join(words.split())[:600]}")
        print(f"  FAILED {self.report.failures[-1]}", flush=True)
        self.save()

    def note(self, name: str, value: Any) -> None:
        """Keeps what the reader must know."""
        self.report.notes[name] = value
        self.save()

    def skip(self, why: str) -> None:
        """Keeps why something was not run."""
        self.report.skipped.append(why)
        print(f"  skipped: {why}", flush=True)
        self.save()

    def run(self, command: Sequence[str], log: str, **environment: str) -> tuple[int | None, str]:
        """(status, or None where the section's time was over; what it printed, which gpu_logs/LOG.log keeps too)."""
        how = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT), **environment}}
        status: int | None = None
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, self.left()), **how)
            status, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as cut:
            said = (cut.stdout or b"").decode(errors="replace")
        path = self.settings.out / "gpu_logs" / f"{log}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(said, encoding="utf-8")
        return status, said

    def save(self, *, complete: bool = False) -> None:
        """Writes gpu_<section>.json and .csv."""
        about = {**self.about, "run": self.settings.run, "quick": self.quick}
        about |= {"rehearsal": self.settings.rehearsal, "complete": complete}
        results.save(self.settings.out, f"gpu_{self.section}", self.report, about)

    def ceilings(self) -> dict[str, float]:
        """{"copy": bytes/s, precision: FLOP/s} as section `ceilings` measured them in this run."""
        if self._ceilings is None:
            found = results.load(self.settings.out, "gpu_ceilings")
            if found is None or found["run"] != self.settings.run or "ceilings" not in found["notes"]:
                raise RuntimeError("there are no ceilings of this run: section ceilings did not finish")
            self._ceilings = found["notes"]["ceilings"]
        return self._ceilings

    def backend(self, op: str) -> str:
        """What to ask of an op: "auto" on a GPU; in a rehearsal Triton's interpreter where it can serve."""
        interpreted = self.device.type == "cpu" and _triton.INTERPRETED and "triton" in _dispatch._REGISTRY[op]
        return "triton" if interpreted else "auto"

    def precisions(self, *wanted: str) -> tuple[str, ...]:
        """The precisions asked for, less what the interpreter multiplies wrongly."""
        if self.device.type == "cpu" and _triton.INTERPRETED:
            return tuple(name for name in wanted if name != "bfloat16") or ("float16",)
        return wanted

    def serving(self, precision: str, *ops: str) -> None:
        """Notes which backend serves each op on a GPU, and fails where that is plain torch."""
        for op in ops:
            choice = _dispatch.explain(op, self.device, torch.float32, precision)
            self.note(f"{op}, {precision}", choice.backend)
            if choice.backend == "reference" and self.device.type == "cuda":
                why = "; ".join(f"{name}: {reason}" for name, reason in choice.refusals.items()) or "it has no other"
                self.fail(f"{op}, {precision}", f"plain torch serves it here ({why})")

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """torch.compile of `function`, sizes fixed; in a rehearsal traced, but run op by op."""
        torch._dynamo.reset()
        return torch.compile(function, dynamic=False, backend="inductor" if self.clock.cuda else "aot_eager")

    def sentences(self) -> tuple[list[str], str]:
        """The words of the text, one after the other, and where it is from."""
        text = texts.read(self.settings.text)
        return [word for sentence in text.sentences for word in sentence], text.source
