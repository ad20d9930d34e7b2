"""Functions of tensors, traced and compiled once, and cached on disk for other workers and later runs.

A function is traced with tensors that have shapes but no values. Constants that the trace reads beside its arguments,
such as the noise schedule's table, are cached with the compiled function. A run that finds both need not trace, which
otherwise dominates the time to a study's first evaluation. As with the compiler's own cache, whoever can write to the
folder can run code as its owner.
"""

import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

import diffcredit.diffusion
from diffcredit.diffusion.fast.rewriting import add_in_kernels, leave_out_divisions_by_one
from diffcredit.util.artifacts import atomic_folder, fingerprint
from diffcredit.util.events import event
from diffcredit.util.notes import cache_folder

Function = Callable[..., Sequence[Tensor]]
UNUSED_DAYS = 60  # after which an unused function is deleted, since versions and code change
AT_ONCE = 8  # kernels compiled in parallel; each needs memory for its tensors
PATCHES = {"triton.autotune_at_compile_time": False}  # it would compile kernels one after another, for minutes
RULED = "deterministic"
"""Inductor's setting that fixes the order of sums by rule. Without it several orders are timed on the device and the
fastest is taken, so another process may get other last bits."""


class Compiled:
    """``function``, compiled at the first call. Each argument must be None at every call, or a tensor of the same
    shape, strides, dtype and device. ``identity`` distinguishes it from other functions."""

    def __init__(self, function: Function, identity: object) -> None:
        self._function, self._identity = function, identity
        self._ready: Function | None = None

    def __call__(self, *given: Tensor | None) -> Sequence[Tensor]:
        there = [each for each in given if each is not None]
        if self._ready is None:
            absent = [place for place, each in enumerate(given) if each is None]

            def function(*some: Tensor) -> Sequence[Tensor]:
                arguments: list[Tensor | None] = list(some)
                for place in absent:
                    arguments.insert(place, None)
                return self._function(*arguments)

            clock = time.perf_counter()
            self._ready, found = _load_or_compile(function, there, [self._identity, absent])
            event("function ready", found=found, seconds=round(time.perf_counter() - clock, 3))
        return self._ready(*there)


def _load_or_compile(function: Function, given: Sequence[Tensor], identity: object) -> tuple[Function, bool]:
    """Return ``function`` compiled, and whether it was found in the cache."""
    kept = cache_folder()
    with suppress(OSError):
        (kept / "functions").mkdir(parents=True, exist_ok=True)
    if not os.access(kept / "functions", os.W_OK):
        return _with(*_compile(function, given)), False
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kept / "compiled"))
    looks = [[list(each.shape), list(each.stride()), str(each.dtype), str(each.device)] for each in given]
    folder = kept / "functions" / fingerprint([identity, looks, _environment(given[0].device)])
    with FileLock(f"{folder}.lock"):  # one of several workers that start together compiles
        if folder.exists():
            with suppress(OSError):  # another user may own it
                os.utime(folder)
            try:
                return _read(folder, given[0].device), True
            except Exception:  # whatever is wrong with it, it can be compiled again
                shutil.rmtree(folder)
        _delete_unused(folder.parent)
        compiled, constants = _compile(function, given)
        with suppress(RuntimeError, AssertionError), atomic_folder(folder) as temporary:
            compiled.save(path=str(temporary / "compiled"))  # not every function can be saved
            save_file({str(place): constant for place, constant in enumerate(constants)}, temporary / "constants")
    return _with(compiled, constants), False


def _delete_unused(folder: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for each in folder.iterdir():
        with suppress(OSError):  # another process may be faster
            if each.is_dir() and each.stat().st_mtime < oldest:
                shutil.rmtree(each)
                each.with_name(f"{each.name}.lock").unlink()


def _compile(function: Function, given: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """Return ``function`` compiled, and the constants that are its last arguments."""
    graph, constants = traced(function, given)
    precompile_kernels(graph.graph)
    patches = PATCHES | ({RULED: True} if sums_by_rule() else {})
    compiled = torch._inductor.standalone_compile(
        graph, [*given, *constants], dynamic_shapes="from_example_inputs", options={"config_patches": patches}
    )
    return compiled, constants


@cache
def sums_by_rule() -> bool:
    """Return whether this version of torch has the setting ``RULED``; it belongs to the numerics of a result."""
    from torch._inductor import config  # takes seconds

    return hasattr(config, RULED)


def _read(folder: Path, device: torch.device) -> Function:
    constants = load_file(folder / "constants", device=str(device))
    compiled = torch._inductor.CompiledArtifact.load(path=str(folder / "compiled"))
    return _with(compiled, [constants[str(place)] for place in range(len(constants))])


def _with(compiled: Any, constants: list[Tensor]) -> Function:
    return lambda *given: compiled(*given, *constants)


def traced(function: Function, given: Sequence[Tensor]) -> tuple[GraphModule, list[Tensor]]:
    """Return ``function`` as a graph of the tensors ``given`` and of the constants that it reads, and these."""
    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
    constants = _lift(module)
    leave_out_divisions_by_one(module.graph)
    add_in_kernels(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module, constants


def _lift(module: GraphModule) -> list[Tensor]:
    """Turn the constants of ``module`` into arguments, in place, and return them."""
    places: dict[Any, Any] = {}
    last = [node for node in module.graph.nodes if node.op == "placeholder"][-1]
    for node in [node for node in module.graph.nodes if node.op == "get_attr"]:
        if node.target not in places:
            with module.graph.inserting_after(last):
                last = places[node.target] = module.graph.placeholder(f"constant_{len(places)}")
            last.meta.update(node.meta)
        node.replace_all_uses_with(places[node.target])
        module.graph.erase_node(node)
    constants = [getattr(module, name).detach().contiguous() for name in places]
    for name in places:
        delattr(module, name)  # else the compiler adds it as an argument again
    return constants


def _environment(device: torch.device) -> list[object]:
    """Return all that a compiled function depends on beside its trace: code, versions, the device and its settings."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    tf32 = [torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32]
    return [_code(), platform.python_version(), torch.version.cuda, kind, tf32]


@cache
def _code() -> list[str]:
    """Return fingerprints of this package and of those that trace and compile functions."""
    root = Path(diffcredit.diffusion.__file__).parent
    own = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(root.rglob("*.py")))).hexdigest()
    return [own, *(f"{name} {_version(name)}" for name in ("torch", "triton", "diffusers", "peft"))]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def precompile_kernels(graph: Graph) -> None:
    """Call each distinct operator of ours in ``graph`` once, in parallel, on uninitialised tensors. The network's first
    step would compile the kernels one after another, for a minute."""
    calls: dict[str, Node] = {}
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace == "diffcredit":
            calls.setdefault(str([node.target, map_arg(node.args, _look)]), node)
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        list(pool.map(_call, calls.values()))


def _look(node: Node) -> Any:
    tensor = node.meta["val"]
    return tensor.shape, tensor.stride(), tensor.dtype


def _call(node: Node) -> None:
    target: Any = node.target
    first: Any = node.args[0]
    device = first.meta["val"].device
    there = torch.cuda.device(device) if device.type == "cuda" else nullcontext()  # a thread has its own current device
    with suppress(torch.OutOfMemoryError), there:
        target(*map_arg(node.args, _whatever))  # if memory runs out, it is compiled when first used


def _whatever(node: Node) -> Any:
    like: Tensor = node.meta["val"]
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
