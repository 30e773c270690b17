"""One of two processes that train together and capture at different steps: python -m ... RANK FILE (on a stand-in)."""

import sys

import torch
import torch.distributed as dist

from elmo_fast.pretrain.processes import Processes
from tests.ops.graph_cases import drop_all
from tests.pretrain.sides import Side, check_equal


class Done:
    """A collective that has been waited for."""

    def wait(self):
        pass


def through_the_host(function):
    """gloo's collective for tensors of a device: it is between graphs, where the host may wait."""

    def run(into, *others, async_op=False):
        parts = into if isinstance(into, list) else [into]
        here = [part.cpu() for part in parts]
        function(here if isinstance(into, list) else here[0], *(other.cpu() for other in others))
        for part, value in zip(parts, here, strict=True):
            part.copy_(value)
        return Done()

    return run


def main(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    dist.all_reduce, dist.all_gather = map(through_the_host, (dist.all_reduce, dist.all_gather))
    assert Processes().size == 2
    replays, replay = [], torch.cuda.CUDAGraph.replay
    torch.cuda.CUDAGraph.replay = lambda graph: (replays.append(graph), replay(graph))
    settings, counts = {"batch_size": 4, "input": "words", "words": 500}, []
    sides = Side(**settings), Side(True, **settings)
    for side in sides:
        for number in range(6):
            if number == rank + 2:
                drop_all()  # the next step is eager here, a replay there
            before = len(replays)
            side.take(number, 0, rate=0.2 / (number + 1))
            counts.append(len(replays) - before)
    check_equal(sides)
    assert [count > 0 for count in counts[6:]] == [number not in (0, rank + 2) for number in range(6)], counts
    dist.barrier()
    print("equal")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
