"""Functions of tensors, traced and compiled once, and found again by other workers and later runs.

A function is traced with tensors that have shapes but no numbers. What the trace sees beside its arguments, such as the
noise schedule's table, is kept with what was compiled. A run that finds both need not trace, which takes longer than
all else before a study's first evaluation. Like the compiler's own cache, the folder is for those alone who may run
code as its owner.
"""

import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import diffcredit.diffusion
from diffcredit.diffusion.fast.precompiling import precompile_kernels
from diffcredit.diffusion.fast.rewriting import add_in_kernels, leave_out_divisions_by_one
from diffcredit.util.artifacts import atomic_folder, fingerprint
from diffcredit.util.events import event

Function = Callable[..., Sequence[Tensor]]
UNUSED_DAYS = 60  # after which a function that was not asked for is forgotten: versions and code go on
PATCHES = {"triton.autotune_at_compile_time": False}  # which makes kernels one after another, for minutes
RULED = "deterministic"
"""Inductor's setting by which the order of sums follows from a rule. Without it several orders race on the device, and
the one that is faster at that moment is kept: another process may get other last bits."""


def cache_folder() -> Path:
    """For what other processes and later runs need not find out again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diffcredit"


class Compiled:
    """``function`` of tensors that look the same at every call, or are None at every call, made ready at the first one;
    ``identity`` tells it from other functions."""

    def __init__(self, function: Function, identity: object) -> None:
        self._function, self._identity = function, identity
        self._ready: Function | None = None

    def __call__(self, *given: Tensor | None) -> Sequence[Tensor]:
        there = [each for each in given if each is not None]
        if self._ready is None:
            lacking = [place for place, each in enumerate(given) if each is None]

            def function(*some: Tensor) -> Sequence[Tensor]:
                all_of_them: list[Tensor | None] = list(some)
                for place in lacking:
                    all_of_them.insert(place, None)
                return self._function(*all_of_them)

            clock = time.perf_counter()
            self._ready, found = _found_or_made(function, there, [self._identity, lacking])
            event("function ready", found=found, seconds=round(time.perf_counter() - clock, 3))
        return self._ready(*there)


def _found_or_made(function: Function, given: Sequence[Tensor], identity: object) -> tuple[Function, bool]:
    """``function`` compiled, and whether that was found or made."""
    kept = cache_folder()
    with suppress(OSError):
        (kept / "functions").mkdir(parents=True, exist_ok=True)
    if not os.access(kept / "functions", os.W_OK):
        return _with(*_made(function, given)), False
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kept / "compiled"))
    looks = [[list(each.shape), list(each.stride()), str(each.dtype), str(each.device)] for each in given]
    folder = kept / "functions" / fingerprint([identity, looks, _surroundings(given[0].device)])
    with FileLock(f"{folder}.lock"):  # of workers that start together one compiles
        if folder.exists():
            with suppress(OSError):  # it may be another's
                os.utime(folder)
            try:
                return _read(folder, given[0].device), True
            except Exception:  # whatever is wrong with it, it can be made again
                shutil.rmtree(folder)
        _forget_unused(folder.parent)
        compiled, constants = _made(function, given)
        with suppress(RuntimeError, AssertionError), atomic_folder(folder) as temporary:
            compiled.save(path=str(temporary / "compiled"))  # which not everything can be
            save_file({str(place): constant for place, constant in enumerate(constants)}, temporary / "constants")
    return _with(compiled, constants), False


def _forget_unused(folder: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for each in folder.iterdir():
        with suppress(OSError):  # another process may be faster
            if each.is_dir() and each.stat().st_mtime < oldest:
                shutil.rmtree(each)
                each.with_name(f"{each.name}.lock").unlink()


def _made(function: Function, given: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """``function`` compiled, and the constants that are to be given to it last."""
    graph, constants = traced(function, given)
    precompile_kernels(graph.graph)
    patches = PATCHES | ({RULED: True} if sums_by_rule() else {})
    compiled = torch._inductor.standalone_compile(
        graph, [*given, *constants], dynamic_shapes="from_example_inputs", options={"config_patches": patches}
    )
    return compiled, constants


@cache
def sums_by_rule() -> bool:
    """Whether this torch can be told to; it belongs to the numerics of what was computed."""
    from torch._inductor import config  # which takes seconds

    return hasattr(config, RULED)


def _read(folder: Path, device: torch.device) -> Function:
    constants = load_file(folder / "constants", device=str(device))
    compiled = torch._inductor.CompiledArtifact.load(path=str(folder / "compiled"))
    return _with(compiled, [constants[str(place)] for place in range(len(constants))])


def _with(compiled: Any, constants: list[Tensor]) -> Function:
    return lambda *given: compiled(*given, *constants)


def traced(function: Function, given: Sequence[Tensor]) -> tuple[GraphModule, list[Tensor]]:
    """``function`` as a graph of the tensors ``given`` and of the constants that it sees beside them, and those."""
    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
    constants = _lift(module)
    leave_out_divisions_by_one(module.graph)
    add_in_kernels(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module, constants


def _lift(module: GraphModule) -> list[Tensor]:
    """Makes arguments of the constants of ``module``, in place, and returns them."""
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
        delattr(module, name)  # else the compiler takes it for an argument once more
    return constants


def _surroundings(device: torch.device) -> list[object]:
    """All that what is compiled depends on beside the function: code, versions, the device, its settings."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    tf32 = [torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32]
    return [_code(), platform.python_version(), torch.version.cuda, kind, tf32]


@cache
def _code() -> list[str]:
    """Fingerprints of this package and of those that functions are traced through and compiled by."""
    root = Path(diffcredit.diffusion.__file__).parent
    own = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(root.rglob("*.py")))).hexdigest()
    return [own, *(f"{name} {_version(name)}" for name in ("torch", "triton", "diffusers", "peft"))]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
