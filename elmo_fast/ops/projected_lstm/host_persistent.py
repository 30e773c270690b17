"""Chooses between the two algorithms of the scan forwards, and starts the persistent one (docs/gpu.md)."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton, _tuned
from elmo_fast.ops._card import MULTIPROCESSORS
from elmo_fast.ops._first_use import refusal as card_refusal
from elmo_fast.ops._triton import cdiv, launch
from elmo_fast.ops.projected_lstm import host, kernels_persistent
from elmo_fast.ops.projected_lstm.failure import flags
from elmo_fast.ops.projected_lstm.host import MOST_POLLS, Steps
from elmo_fast.ops.projected_lstm.layer import Layer

# A block's part of the layer: cells; columns of the projection, and the cells they are summed over.
CELLS, COLUMNS, DEPTH = 32, 64, 256
LARGEST_BATCH, LARGEST_SIZE, LARGEST_CELLS = 32, 512, 4096
SHARED_BYTES = 227 * 1024
WANTS_16_BIT = 'the persistent scan keeps 16-bit weights on chip; take precision="float16" or "bfloat16"'
COUNTER_STRIDE = 32  # int32 between two counters: a line of the L2 each
# The interpreter runs blocks one after the other, and none can wait there: then each phase of a step is a launch.
ONE_LAUNCH = not _triton.INTERPRETED


class Plan(NamedTuple):
    """blocks of a direction; tiles x slices of them project; rows, quarter, share, parts: sizes of a block's tiles."""

    blocks: int
    tiles: int
    slices: int
    rows: int
    quarter: int
    share: int
    parts: int


def plan(layer: Layer) -> Plan:
    """Who does what: block b owns the cells from b·CELLS, and of the projection tile b % tiles, slice b // tiles."""
    rows = _triton.ceil_power_of_two(layer.batch, 16, LARGEST_BATCH)
    tiles, slices = cdiv(layer.size, COLUMNS), cdiv(layer.cells, DEPTH)
    share = _triton.ceil_power_of_two(cdiv(rows * COLUMNS, slices), 16, rows * COLUMNS)
    return Plan(
        max(cdiv(layer.cells, CELLS), tiles * slices),
        tiles,
        slices,
        rows,
        _triton.ceil_power_of_two(cdiv(layer.size, 4), 16),
        share,
        _triton.ceil_power_of_two(slices, 1),
    )


def refusal(layer: Layer, projected: bool = True) -> str | None:
    """One sentence why the persistent scan cannot run this layer, or None."""
    if not projected:
        return "the persistent scan is for layers with a projection (weight_hr)"
    if layer.dtype.itemsize != 2:
        return WANTS_16_BIT
    for name, found, most in (
        ("B", layer.batch, LARGEST_BATCH),
        ("D", layer.size, LARGEST_SIZE),
        ("H", layer.cells, LARGEST_CELLS),
    ):
        if found > most:
            return f"the persistent scan holds a layer of {name} <= {most} on chip, and this one has {name}={found}"
    return None


def too_small(device: torch.device) -> str | None:
    """One sentence why this GPU cannot hold a layer's weights on chip, or None."""
    found = torch.cuda.get_device_properties(device)
    shared: int = getattr(found, "shared_memory_per_block_optin", 0)  # absent from torch's type stubs
    if (found.major, found.minor) < (9, 0):
        return (
            f"the persistent scan needs compute capability 9.0 or newer; {found.name} has {found.major}.{found.minor}"
        )
    if found.multi_processor_count < MULTIPROCESSORS:
        counted = found.multi_processor_count
        return f"the persistent scan needs {MULTIPROCESSORS} multiprocessors; {found.name} offers {counted}"
    if shared < SHARED_BYTES:
        return f"the persistent scan needs 227 KiB of shared memory per block; {found.name} offers {shared // 1024} KiB"
    return None


def algorithm(layer: Layer, device: torch.device, projected: bool = True) -> tuple[str, str]:
    """("stepwise" or "persistent", why) for backend "triton", by what was measured on this GPU."""
    precision = str(layer.dtype).removeprefix("torch.")
    most = _tuned.choice(_tuned.scan_limit(layer.cells, layer.size, precision), device)
    if most is None:
        return "stepwise", "`elmo-fast tune` has not measured the persistent scan of such a layer on this GPU"
    why = refusal(layer, projected)
    if why is None and device.type != "cuda":
        why = f"these tensors are on {device.type}"
    if why is None:
        why = too_small(device)
    if why is not None:
        return "stepwise", why
    if layer.batch > most:
        return "stepwise", f"measured on this GPU: the persistent scan is the faster one up to B={most} in {precision}"
    why = card_refusal("projected_lstm", "triton_persistent", device, precision)
    if why is not None:
        return "stepwise", why
    return "persistent", f"measured on this GPU: the faster one up to B={most} in {precision}"


def chosen(layer: Layer, device: torch.device, projected: bool) -> host.Scan:
    """The scan that `algorithm` names."""
    return scan if algorithm(layer, device, projected)[0] == "persistent" else host.scan


def flag(device: torch.device) -> Tensor:
    """int32 [1] of this device: not 0 once a block of a persistent scan has given up waiting."""
    device = torch.device(device.type, torch.cuda.current_device()) if device == torch.device("cuda") else device
    if device not in flags:
        flags[device] = torch.zeros(1, dtype=torch.int32, device=device)
    return flags[device]


def scan(
    layer: Layer, steps: Steps, weights: list[Tensor], masks: Tensor | None, lengths: Tensor, save: bool,
    failed: Tensor | None = None,
) -> None:  # fmt: skip
    """As host.scan: one launch for all directions if their blocks fit together, else one after the other."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    if b == 0 or t == 0:
        return
    made = plan(layer)
    weight_hh, bias, weight_hr = weights
    hidden = steps.hidden.new_empty(r, b, h)
    parts = bias.new_empty(r, made.slices, b, d)
    counters = lengths.new_zeros(r, made.slices + made.tiles + 1, COUNTER_STRIDE, dtype=torch.int32)
    failed = flag(lengths.device) if failed is None else failed
    together = r if r * made.blocks <= MULTIPROCESSORS else 1

    def start(direction: int, first: int, last: int, phase: int, barrier: bool) -> None:
        launch(
            kernels_persistent.persistent, (made.blocks, together),
            steps.hidden, weight_hh, bias, steps.gates, steps.cells, hidden, weight_hr, masks, steps.projections, parts,
            counters, lengths, failed, first, last, direction, b, t, d, h, steps.cells.shape[1],
            layer.cell_clip, layer.projection_clip, MOST_POLLS,
            BARRIER=barrier, PHASE=phase, SAVE=save, MASKED=masks is not None, TILES=made.tiles, SLICES=made.slices,
            BM=made.rows, BC=CELLS, BN=COLUMNS, BK=DEPTH, QUARTER=made.quarter, SHARE=made.share, PARTS=made.parts,
            num_warps=8, num_stages=1, launch_cooperative_grid=True,
        )  # fmt: skip

    for direction in range(0, r, together):
        if ONE_LAUNCH:
            start(direction, 0, t, 0, True)
            continue
        for step in range(t):
            for phase in range(3):
                start(direction, step, step + 1, phase, False)
