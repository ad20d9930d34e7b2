"""Where the time of a recorded step goes, by kind of kernel."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "sums, concatenations, doublings, noises": ("triton_",),  # first, since their names tell what they are beside
    "convolutions and their gradients for images": ("product", "fprop", "dgrad", "convolve_common", "nhwcAddPadding"),
    "gradients for weights": ("weight_", "wgrad", "ReduceSplitK", "init_device_workspace"),
    "norms with shift and SiLU": ("norm", "norm_slopes"),
    "attention": ("sdpa", "flash", "compute_dot_do_o", "convert_dq"),
    "linear layers": ("nvjet", "gemm", "splitKreduce", "gemv", "cutlass"),
}


def shares(work: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of ``work`` by kind of kernel."""
    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    found = dict.fromkeys([*KINDS, "optimizer, copies, look-ups"], 0.0)
    for event in seen.key_averages():
        found[_kind(event.key)] += event.self_device_time_total / 1e3
    return found


def _kind(kernel: str) -> str:
    for kind, names in KINDS.items():
        if any(name in kernel if name != "norm" else kernel == "norm" for name in names):
            return kind
    return "optimizer, copies, look-ups"
