"""The files that a study's evaluators read: its images, prepared models, fitted properties and plug-ins."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.contributions.sources import METADATA
from diffcredit.execution.shipping import WorkerFiles
from diffcredit.study.config import StudyConfig, references
from diffcredit.study.sections import MODELS, PATHS

if TYPE_CHECKING:
    from diffcredit.study.study import Study


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
    return WorkerFiles(study.folder, roots, written)


def _named_paths(config: StudyConfig) -> Iterable[Path]:
    """Yield the files and folders that settings name, which are full paths."""
    for path in (config.contributions.path, config.contributions.holdout):
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


def _plugins(config: StudyConfig, home: Path) -> Iterable[Path]:
    """Yield the modules beside the study file and the packages there that it names; none if it names no plug-in."""
    modules = {name.partition(":")[0].partition(".")[0] for _, name in references(config) if ":" in name}
    if modules:
        yield from home.glob("*.py")
    for module in sorted(modules):
        if (home / module).is_dir():
            yield home / module
