"""Whether a persistent scan has failed: flags on the GPU that its blocks set, read on request."""

import torch
from torch import Tensor

# Per device, int32 [1]: not 0 once a block of a persistent scan has given up waiting.
flags: dict[torch.device, Tensor] = {}


def persistent_failure() -> str | None:
    """One sentence if a persistent scan has failed since the last call, else None; waits for the GPUs that ran one.

    A block gives up when others have not arrived for seconds, which only a fault can cause. What it could not compute
    is NaN then, and every other number is right. Nothing else in the package waits for this: call it where you wait.
    """
    failed = [device for device, raised in flags.items() if bool(raised.item())]
    for device in failed:
        flags[device].zero_()
    if not failed:
        return None
    return (
        f"projected_lstm: on {', '.join(map(str, failed))} the blocks of a persistent scan did not all arrive, so that "
        'its results hold NaN; use backend="triton" there'
    )
