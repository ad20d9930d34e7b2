"""Modules beside a study file, imported only where the user allowed their very bytes.

A plug-in may import what lies beside it. Each of these files is compiled from the bytes whose hash was allowed:
bytecode in ``__pycache__`` and compiled extensions, which could be anything, are never loaded from there. Installed
packages come first, so no module beside a study file takes the place of one.
"""

import hashlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from diffcredit.util.consent import require

_folders: list[Path] = []


def guard(folder: Path) -> None:
    """From now on find modules in ``folder`` as well, after installed ones and before those of folders that were
    guarded earlier, and import from it only what is allowed."""
    place = folder.resolve()
    if _BESIDE not in sys.meta_path:
        sys.meta_path.append(_BESIDE)
        sys.path_hooks.insert(0, _Finder)
    if place in _folders:
        _folders.remove(place)
    _folders.insert(0, place)
    for entry in [*sys.path_importer_cache]:
        if _is_guarded(entry) and not isinstance(sys.path_importer_cache[entry], _Finder):  # seen before it was guarded
            del sys.path_importer_cache[entry]


class _Beside(MetaPathFinder):
    """Finds modules in the guarded folders; a package's own modules are found by its path."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [*map(str, _folders)], target) if path is None else None


_BESIDE = _Beside()


class _Allowed(SourceFileLoader):
    """Loads a source file if its bytes are allowed."""

    def get_code(self, fullname: str) -> CodeType:
        file = self.get_filename(fullname)
        content = self.get_data(file)
        require(Path(file), hashlib.sha256(content).hexdigest(), f"import {fullname}")
        return self.source_to_code(content, file)


class _Finder(FileFinder):
    """Finds source files in one folder, as a hook of the search path that serves guarded folders alone."""

    def __init__(self, entry: str) -> None:
        if not _is_guarded(entry):
            raise ImportError(entry)
        super().__init__(entry, (_Allowed, [".py"]))


def _is_guarded(entry: str) -> bool:
    """Return whether ``entry`` of a search path belongs to a guarded folder, and not to a folder of installed packages
    that lies in one, as ``.venv`` does in many a project."""
    installed = [root for each in sys.path for root in (Path(each).absolute(), Path(each).resolve())]

    def innermost(place: Path) -> Path | None:
        roots = [root for root in (*_folders, *installed) if place.is_relative_to(root)]
        return max(roots, key=lambda root: len(root.parts), default=None)

    return any(innermost(place) in _folders for place in (Path(entry).absolute(), Path(entry).resolve()))
