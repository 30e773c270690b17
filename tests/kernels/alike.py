"""The kernels whose facts for sm_89 are not those for sm_86, whose rows of the golden tables stand for both.

`python -m tests.kernels.alike [OP ...]` compiles all launches of small cards for both and prints those that differ, as
JSON; --sample compiles the first launch of each op alone.
"""

import argparse
import json
import os

os.environ["TRITON_INTERPRET"] = "0"

from tests.kernels.compile import OPS, compiled
from tests.kernels.launch import distinct

ONE, OTHER = 86, 89


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", default=OPS)
    parser.add_argument("--sample", action="store_true")
    arguments = parser.parse_args()
    differ, number = {}, 0
    for op in arguments.ops:
        launches = list(distinct(op, 99).items())
        for name, launch in launches[: 1 if arguments.sample else None]:
            one, other = (compiled(launch, capability) for capability in (ONE, OTHER))
            number += 1
            if one != other:
                differ[f"{op}: {name}"] = one, other
    print(json.dumps({"compiled": number, "differ": differ}))


if __name__ == "__main__":
    main()
