"""The persistent scan's counters, as an explicit model: every order in which blocks can go on is tried.

A block is a list of actions: write or read a version of a piece of memory, arrive at a counter, wait for one. Each
piece has one writer, so where every block stands is the whole state. That the kernel arrives and waits as the model
does is checked too, by listening to it.
"""

import pytest
import torch

from elmo_fast.ops import _triton, projected_lstm
from elmo_fast.ops.projected_lstm import host_persistent
from elmo_fast.ops.projected_lstm.host import Layer
from tests.ops.at_once import at_once
from tests.ops.lstm_cases import make

needs_triton = pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
pytestmark = needs_triton

STEPS = 2
# Projection and cells in tiles of 16 columns, 16 and 8 cells: (D, H) -> blocks, tiles, slices as in the comments.
SIZES = {
    "3 blocks, 1 tile, 2 slices": (16, 24),  # the third block has cells and no projection
    "3 blocks, 3 tiles, 1 slice": (48, 8),  # two blocks have no cells
    "4 blocks, 2 tiles, 2 slices": (32, 32),
}


def layer_of(size, cells, batch=1):
    return Layer(1, batch, STEPS, 4, size, cells, (False,), 3.0, 3.0, False, torch.float16)


def programs(size, cells):
    """Per block, its actions in all steps, as the kernel's comments and `plan` divide the work."""
    made = host_persistent.plan(layer_of(size, cells))
    owners = _triton.cdiv(cells, host_persistent.CELLS)
    slice_of = {b: b * host_persistent.CELLS // host_persistent.DEPTH for b in range(owners)}
    projecting = range(made.tiles * made.slices)
    found = []
    for b in range(made.blocks):
        tile, part, actions = b % made.tiles, b // made.tiles, []
        for step in range(STEPS):
            turn = step + 1
            actions += [("read", ("h", p, step), step) for p in projecting if step]
            if b in slice_of:
                actions += [("write", ("hidden", b), turn), ("arrive", ("slice", slice_of[b]))]
            if b in projecting:
                of_slice = [c for c in slice_of if slice_of[c] == part]
                actions += [("wait", ("slice", part), turn * len(of_slice))]
                actions += [("read", ("hidden", c), turn) for c in of_slice]
                actions += [("write", ("parts", tile, part), turn), ("arrive", ("tile", tile))]
                actions += [("wait", ("tile", tile), turn * made.slices)]
                actions += [("read", ("parts", tile, other), turn) for other in range(made.slices)]
                actions += [("write", ("h", b, turn), turn)]
            actions += [("arrive", ("all",)), ("wait", ("all",), turn * made.blocks)]
        found.append(actions)
    return found


def fault(programs):
    """The first fault that some order of the actions leads to, or None: all states are visited."""
    writer = {a[1]: b for b, actions in enumerate(programs) for a in actions if a[0] == "write"}
    counters = sorted({a[1] for actions in programs for a in actions if a[0] in ("arrive", "wait")})
    pieces = sorted(writer, key=str)
    before = []  # per block and place: (arrivals per counter, version per piece) once that many actions are done
    for actions in programs:
        arrivals, versions = dict.fromkeys(counters, 0), dict.fromkeys(pieces, 0)
        states = [(dict(arrivals), dict(versions))]
        for action in actions:
            if action[0] == "arrive":
                arrivals[action[1]] += 1
            elif action[0] == "write":
                versions[action[1]] = action[2]
            states.append((dict(arrivals), dict(versions)))
        before.append(states)
    start = (0,) * len(programs)
    seen, left = {start}, [start]
    while left:
        at = left.pop()
        stuck = True
        for b, actions in enumerate(programs):
            if at[b] == len(actions):
                continue
            kind, what, *value = actions[at[b]]
            if kind == "wait" and sum(before[c][at[c]][0][what] for c in range(len(programs))) < value[0]:
                continue
            if kind == "read":
                version = before[writer[what]][at[writer[what]]][1][what]
                if version != value[0]:
                    return f"block {b} reads {what} in version {version}, not {value[0]}"
            stuck = False
            after = (*at[:b], at[b] + 1, *at[b + 1 :])
            if after not in seen:
                seen.add(after)
                left.append(after)
        if stuck and any(at[b] < len(actions) for b, actions in enumerate(programs)):
            return f"deadlock: every block waits at {at}"
    return None


@pytest.mark.parametrize("name", SIZES)
def test_no_order_of_the_blocks_is_a_fault(name, small):
    assert fault(programs(*SIZES[name])) is None


def without(programs, kind, counter):
    return [[a for a in actions if not (a[0] == kind and a[1][0] == counter)] for actions in programs]


@pytest.mark.parametrize("counter", ["slice", "tile", "all"])
def test_a_barrier_less_is_found(counter, small):
    """The model can fail: without the waits at one kind of counter something is read too early or too late."""
    assert "reads" in fault(without(programs(32, 32), "wait", counter))


@pytest.mark.parametrize("counter", ["slice", "tile", "all"])
def test_an_arrival_less_is_found(counter, small):
    missing = programs(16, 24)
    missing[0] = without(missing[:1], "arrive", counter)[0]
    assert "deadlock" in fault(missing)


@pytest.mark.parametrize("counter", ["slice", "tile", "all"])
def test_a_target_too_small_is_found(counter, small):
    less = [
        [(a[0], a[1], a[2] - 1) if a[0] == "wait" and a[1][0] == counter else a for a in actions]
        for actions in programs(32, 32)
    ]
    assert "reads" in fault(less)


@pytest.mark.skipif(not _triton.INTERPRETED, reason="listens to the interpreter")
@pytest.mark.parametrize("name", SIZES)
def test_the_kernel_arrives_and_waits_as_the_model(name, small, monkeypatch):
    from triton.runtime.interpreter import interpreter_builder

    from elmo_fast.ops.projected_lstm import kernels_persistent

    size, cells = SIZES[name]
    made = host_persistent.plan(layer_of(size, cells))
    heard = [[] for _ in range(made.blocks)]
    first = []

    def place(counter):
        index = (int(counter.handle.data[0]) - first[0]) // 4 // host_persistent.COUNTER_STRIDE
        if index < made.slices:
            return ("slice", index)
        return ("tile", index - made.slices) if index < made.slices + made.tiles else ("all",)

    def listening(kind, function):
        def called(counter, *rest):
            target = [int(rest[0].handle.data[0])] if kind == "wait" else []
            heard[interpreter_builder.grid_idx[0]].append((kind, place(counter), *target))
            return function(counter, *rest)

        return called

    def launch(kernel, grid, *arguments, **options):
        first.append(arguments[kernel.arg_names.index("counters")].data_ptr())
        _triton.launch(kernel, grid, *arguments, **options)

    for kind in ("arrive", "wait"):
        monkeypatch.setattr(kernels_persistent, kind, listening(kind, getattr(kernels_persistent, kind)))
    monkeypatch.setattr(host_persistent, "launch", launch)
    monkeypatch.setattr(host_persistent, "ONE_LAUNCH", True)
    monkeypatch.setattr(host_persistent, "MOST_POLLS", 5000)
    case = make(1, STEPS, 4, size, cells, directions=1)
    with at_once(kernels_persistent.persistent, 0):
        projected_lstm(*case, reverse=(False,), precision="float16", backend="triton_persistent")
    assert heard == [[a for a in actions if a[0] in ("arrive", "wait")] for actions in programs(size, cells)]
