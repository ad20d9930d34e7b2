"""The user's consent to run a plug-in: a file of code is allowed by its hash, for good or for one command.

``diffcredit trust FILE`` keeps hashes in the file ``diffcredit/trusted`` of the user's own configuration folder, which
no study can write. ``--allow-plugins`` (:data:`ALLOW_PLUGINS`) allows all code, ``--no-plugins`` (:data:`NO_PLUGINS`)
none, whatever else is allowed. Workers on other machines get the hashes that their driver allows, and no others.
"""

import hashlib
import os
import shlex
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from diffcredit.errors import UserError
from diffcredit.util.artifacts import atomic_file, exclusive_lock
from diffcredit.util.sanitize import single_line

NO_PLUGINS = "DIFFCREDIT_NO_PLUGINS"
"""The environment variable that switches all plug-ins off where it is neither empty nor 0."""

ALLOW_PLUGINS = "DIFFCREDIT_ALLOW_PLUGINS"
"""The environment variable that allows all plug-ins where it is neither empty nor 0, for a user's own machine."""

SHOWN = 16  # digits of a hash in a message

_granted: frozenset[str] = frozenset()


def code_hash(file: Path) -> str:
    """Return the hash by which a file of code is allowed, and by which a plug-in's identity knows it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def plugins_off() -> bool:
    return _is_set(NO_PLUGINS)


def all_allowed() -> bool:
    return _is_set(ALLOW_PLUGINS) and not plugins_off()


def is_allowed(code: str) -> bool:
    """Return whether code of this hash may run."""
    return not plugins_off() and (all_allowed() or code in _granted or code in trusted())


def require(file: Path, code: str, what: str) -> None:
    """Raise a UserError, in which ``what`` would run, unless the ``code`` of ``file`` may."""
    if is_allowed(code):
        return
    changed = _name(file) in trusted().values()
    state = "it has changed since you allowed it" if changed else "you have not allowed it"
    raise UserError(
        f"{what} would run {single_line(str(file))} (sha256 {code[:SHOWN]}…), and {state}: read it, then "
        f"diffcredit trust {single_line(shlex.quote(str(file)))}, or --allow-plugins for this command alone"
    )


def grant(codes: Iterable[str]) -> None:
    """Allow code of these hashes in this process, instead of those before: a worker's driver has the user's consent."""
    global _granted
    _granted = frozenset(codes)


def trusted() -> Mapping[str, str]:
    """Return the hashes that the user allowed for good, each with the file that had it."""
    file = trust_file()
    if not file.exists():
        return {}
    if file.stat().st_mode & 0o022:
        raise UserError(f"{file}: others may write it, so it is nobody's consent; read it, then chmod 600 it")
    lines = file.read_text(encoding="utf-8").splitlines()
    return {code: name for code, _, name in (line.partition("  ") for line in lines)}


def trust(files: Iterable[Path]) -> None:
    """Allow files of code by their hashes, for good; each as it is now, and no longer as it was before."""
    new = {_name(file): code_hash(file) for file in files}
    with _rewritten() as known:
        for code in [code for code, name in known.items() if name in new]:
            del known[code]
        known.update({code: name for name, code in new.items()})


def forget(codes: Collection[str]) -> None:
    """Take back the consent to code of these hashes."""
    with _rewritten() as known:
        for code in codes:
            known.pop(code, None)


def trust_file() -> Path:
    """Return the file of what this user trusts."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "diffcredit" / "trusted"


@contextmanager
def _rewritten() -> Generator[dict[str, str]]:
    """Yield what is trusted, to be changed; then write it, readable to this user alone."""
    file = trust_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive_lock(file.with_name("trusted.lock"), lambda: None), atomic_file(file) as temporary:
        known = dict(trusted())
        yield known
        temporary.chmod(0o600)
        temporary.write_text("".join(f"{code}  {name}\n" for code, name in known.items()), encoding="utf-8")


def _name(file: Path) -> str:
    return single_line(str(file.absolute()))


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")
