"""python -m elmo_fast.ops._check_program DEVICE: checks the units that standard input names, one line of JSON each.

It is a process of its own, because an illegal address ends a CUDA context. It answers each line with one line: `MARK`
and the JSON of an `Answer`. `_check_processes` starts it.
"""

import json
import sys
import traceback

import torch

from elmo_fast.ops._check import GRAPH, MARK, Answer, Unit, check, check_replay
from elmo_fast.ops._registry import register_replay


def main(words: list[str]) -> int:
    """Answers until the input ends, or the context is lost."""
    device = torch.device(words[0])
    if device.type == "cuda":
        torch.zeros(1, device=device)  # a context, or the reason why there is none
    print(f"{MARK}ready", flush=True)
    for line in sys.stdin:
        *named, module = json.loads(line)
        unit = Unit(*named)
        if module is not None:  # of a layer that this process has not imported
            register_replay(unit.op, module)
        try:
            answer = (check_replay if unit.backend == GRAPH else check)(unit, device)
        except Exception:  # noqa: BLE001 (of the check itself, or of the reference)
            answer = Answer(unable=" ".join(traceback.format_exc(limit=-2).split()))
        print(f"{MARK}{json.dumps(answer)}", flush=True)
        if answer.lost:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
