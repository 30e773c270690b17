"""Times calls on a device: events around the call, a flushed L2 before it; a host clock where there is no GPU."""

import time
from collections.abc import Callable

import torch

LEAST_FLUSH = 256 * 2**20


class Clock:
    """Seconds that one call takes on `device`.

    On a GPU: by events on the stream. Before each call a buffer several times the L2 is written, outside the timed
    region, so that nothing of the last repetition is found in cache. While that runs the host is already launching.
    """

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.way = "one by one" if self.cuda else "host clock"  # as rows tell it
        if self.cuda:
            size = max(LEAST_FLUSH, 4 * torch.cuda.get_device_properties(device).L2_cache_size)
            self._flush = torch.empty(size // 4, dtype=torch.float32, device=device)
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(self, call: Callable[[], object]) -> float:
        """One call."""
        if not self.cuda:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        self._flush.zero_()
        self._start.record()
        call()
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1000


def graphed(call: Callable[[], object]) -> Callable[[], object]:
    """`call` captured in a CUDA graph, as a call that replays it; raises what capturing raised."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def peak(call: Callable[[], object]) -> float | None:
    """MiB that `call` needs at its peak beyond what is allocated before it; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def kernels(call: Callable[[], object], most: int = 10) -> dict[str, str]:
    """Where one call's time on the GPU goes: {kernel: "N x, total us"}, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        call()
        torch.cuda.synchronize()
    found = [each for each in profiler.key_averages() if each.self_device_time_total > 0]
    found.sort(key=lambda each: -each.self_device_time_total)
    return {each.key[:80]: f"{each.count} x, {each.self_device_time_total:.1f} us" for each in found[:most]}
