"""Where a study's evaluations run (in this process, in worker processes, on a Ray cluster), and the files they read."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from diffcredit.contributions.sources import METADATA
from diffcredit.errors import UserError
from diffcredit.execution import Executor, InProcess, LocalWorkers, RayWorkers
from diffcredit.execution.shipping import WorkerFiles
from diffcredit.study.config import StudyConfig, references, require_plugins
from diffcredit.study.data_section import HouseSection
from diffcredit.study.sections import MODELS, PATHS
from diffcredit.util.consent import code_hash, is_allowed
from diffcredit.util.plugin_code import plugin_file

if TYPE_CHECKING:
    from diffcredit.study.study import Study


@dataclass(frozen=True)
class Workers:
    """The workers that a user asks for.

    ``workers``: how many (None: one for each core or GPU; on a cluster, as many as it has room for).
    ``address`` and ``gpus_per_worker`` concern a Ray cluster. ``timeout``: minutes after which a worker that has not
    finished an evaluation is replaced.
    """

    workers: int | None = None
    on: Literal["local", "ray"] = "local"
    address: str | None = None
    gpus_per_worker: float | None = None
    timeout: float | None = None

    @property
    def timeout_seconds(self) -> float | None:
        return None if self.timeout is None else 60 * self.timeout


def make_executor(study: "Study", wanted: Workers) -> Executor:
    """Return an executor with the workers ``wanted``. A single local worker is this process, unless there is a timeout:
    a process that hangs cannot end itself."""
    from diffcredit.execution.local import DEVICES_VARIABLE, visible_devices

    require_plugins(study.config, study.file)
    if wanted.on == "ray":
        return _ray_workers(study, wanted)
    for option, value in (("--address", wanted.address), ("--gpus-per-worker", wanted.gpus_per_worker)):
        if value is not None:
            raise UserError(f"{option} {value}: only with --on ray")
    threads, device, devices = study.config.threads, study.prepared.device, ()
    if device.type == "cuda" and device.index is None:
        import torch

        devices = visible_devices(torch.cuda.device_count(), os.environ.get(DEVICES_VARIABLE))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    default = max(1, cores // threads) if device.type == "cpu" else len(devices) or 1
    workers = wanted.workers or default
    if workers == 1 and wanted.timeout is None:
        return InProcess(threads)
    return LocalWorkers(workers, threads, timeout=wanted.timeout_seconds, devices=devices)


def _ray_workers(study: "Study", wanted: Workers) -> Executor:
    """Return workers on a Ray cluster, with GPUs unless the study's device is the CPU."""
    device, gpus = study.config.device, wanted.gpus_per_worker
    if device == "cpu" and gpus:
        raise UserError(f"--gpus-per-worker {gpus:g}: {study.file} says device: cpu; leave it out")
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"{study.file}: device: {device!r} is one of this machine; with --on ray: auto, cpu, cuda")
    default = {"auto": None, "cpu": 0.0, "cuda": 1.0}[device]
    return RayWorkers(
        wanted.workers,
        wanted.address,
        study.config.threads,
        default if gpus is None else gpus,
        timeout=wanted.timeout_seconds,
    )


def side_by_side(executor: Executor) -> int:
    """Return how many evaluations run at a time; 1 if only the cluster knows."""
    return executor.workers or 1 if isinstance(executor, LocalWorkers | RayWorkers) else 1


def worker_files(study: "Study") -> WorkerFiles:
    """Return the files that a node needs to evaluate coalitions if it shares no files with this machine."""
    config, home = study.config, study.file.absolute().parent
    roots: dict[Path, list[Path]] = {
        home: [study.file.absolute(), *_plugins(config, home)],
        study.cache.root: [study.cache.folder],
    }
    for path in _named_paths(config):
        roots.setdefault(path, []).append(path)
    lost = config.keep != "nothing" and study.cache.store is None
    written = f"keep: {config.keep} writes files" if lost else ""
    return WorkerFiles(study.folder, roots, written, tuple(_allowed(config, home)))


def _named_paths(config: StudyConfig) -> Iterable[Path]:
    """Yield the files and folders that settings name, which are full paths."""
    given = config.contributions
    house = given.house.path if isinstance(given.house, HouseSection) else None
    files = () if given.near_copies is None else given.near_copies.files
    for path in (given.path, given.holdout, given.identities, house, *files):
        if isinstance(path, Path):
            yield path.parent if path.name in METADATA else path
    yield from _paths_in(config.model.options, MODELS)
    for section in config.properties:
        yield from _paths_in(section.options, PATHS)


def _paths_in(options: Mapping[str, Any], keys: tuple[str, ...]) -> Iterable[Path]:
    """Yield the existing full paths under ``keys``, in nested options too."""
    for key, value in options.items():
        if isinstance(value, dict):
            yield from _paths_in(value, keys)
        elif key in keys and isinstance(value, str) and Path(value).is_absolute() and Path(value).exists():
            yield Path(value)


def _allowed(config: StudyConfig, home: Path) -> Iterable[str]:
    """Yield the hashes of the plug-ins' code, that of modules beside them included, if the user has allowed it."""
    places = [place.rglob("*.py") if place.is_dir() else [place] for place in _plugins(config, home)]
    named = [plugin_file(reference, home) for _, reference in references(config) if ":" in reference]
    yield from filter(is_allowed, map(code_hash, {*chain(*places), *filter(None, named)}))


def _plugins(config: StudyConfig, home: Path) -> Iterable[Path]:
    """Yield the modules beside the study file and the packages there that it names; none if it names no plug-in."""
    modules = {name.partition(":")[0].partition(".")[0] for _, name in references(config) if ":" in name}
    if modules:
        yield from home.glob("*.py")
    for module in sorted(modules):
        if (home / module).is_dir():
            yield home / module
