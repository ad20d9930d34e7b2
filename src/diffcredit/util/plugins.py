"""From a name in a study file to an object: ours by their short names, users' as ``package.module:Class``."""

import dataclasses
import hashlib
import importlib
import inspect
import os
import sys
import traceback
import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from diffcredit.errors import DiffcreditError, UserError, located
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.sanitize import LONGEST_VALUE, shortened

NO_PLUGINS = "DIFFCREDIT_NO_PLUGINS"
"""The environment variable that, set to anything but 0, has every plug-in refused."""


def refuse_plugin(reference: str, where: str) -> None:
    """Raises a UserError where ``reference`` is a plug-in and those are switched off."""
    if ":" in reference and os.environ.get(NO_PLUGINS, "0") not in ("", "0"):
        raise UserError(
            f"{where}: {shortened(reference)} is a plug-in, and they are off (--no-plugins or {NO_PLUGINS})"
        )


def build(
    reference: str,
    options: Mapping[str, Any],
    registry: Mapping[str, str],
    *,
    where: str,
    beside: Path,
    of_function: Callable[[Any], Callable[..., Any]] | None = None,
) -> Any:
    """The object that ``reference`` names, made with ``options``.

    ``registry`` maps our short names to their classes; anything with a colon is a plug-in, looked for beside
    the study file as well as among the installed packages. Options are checked against the annotations of the
    class, and ``where`` (file and key) starts every error. ``of_function`` makes a factory of a plain function, where
    those are accepted.
    """
    factory = _load(reference, registry, where, beside)
    if of_function is not None and inspect.isfunction(factory):
        with located(f"{where}: {shortened(reference)}"):
            factory = of_function(factory)
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        raise UserError(f"{where}: {shortened(reference)} is {factory!r}; a class is expected") from None
    named = {name: p for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in options:
        if name not in named and not takes_any:
            raise UserError(
                f"{where}.{name[:LONGEST_VALUE]}: unknown; {reference} accepts {', '.join(named) or 'no options'}"
            )
    for name, parameter in named.items():
        if parameter.default is parameter.empty and name not in options:
            raise UserError(f"{where}.{name}: missing; {reference} needs it")
    hints = _hints(factory)
    values = {name: _checked(value, hints.get(name, Any), f"{where}.{name}") for name, value in options.items()}
    try:
        component = factory(**values)
    except (TypeError, ValueError) as error:  # how a class refuses options that its annotations allow
        raise UserError(f"{where}: {shortened(dict(options))} is not accepted by {reference}; {error}") from error
    if not _is_json(settings_of(component, options)):
        raise UserError(f"{where}: {reference} has fields that the ledger cannot keep; {_JSON} are accepted")
    return component


@contextmanager
def in_plugin(what: str) -> Generator[None]:
    """Turns whatever a user's code raises within into one line that starts with ``what`` and tells the place."""
    try:
        yield
    except DiffcreditError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise DiffcreditError(
            f"{what} raised {type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        ) from error


def settings_of(component: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What fixes a component's numbers: all fields of a dataclass, or else the options it was given; and the code
    of a plug-in."""
    written = getattr(component, "__wrapped__", component)
    settings = dataclasses.asdict(written) if dataclasses.is_dataclass(written) else dict(options)
    return {**settings, **code_of(component)}


def code_of(component: Any) -> dict[str, str]:
    """Of a plug-in the hash of its module's file, so that a changed program never passes for the old one."""
    written = getattr(component, "__wrapped__", type(component))  # the function that a component stands for, or else it
    module = sys.modules[written.__module__]
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] == "diffcredit":  # our own has the package's version
        return {}
    return {"code": hashlib.sha256(Path(file).read_bytes()).hexdigest()}


_JSON = "texts, finite numbers, true, false, null, lists and mappings of them"


def _is_json(value: Any) -> bool:
    """Whether the ledger can keep ``value`` and fingerprint it."""
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError):
        return False
    return True


def _load(reference: str, registry: Mapping[str, str], where: str, beside: Path) -> Any:
    module_name, colon, attribute = registry.get(reference, reference).partition(":")
    if not colon:
        raise UserError(
            f"{where}: {shortened(reference)} is unknown; accepted: {', '.join(registry)}, or a plug-in "
            "'package.module:Class'"
        )
    if reference not in registry:
        refuse_plugin(reference, where)
        # only for a plug-in: else the modules beside a stranger's study file could stand in for packages we lack
        if str(beside) not in sys.path:
            sys.path.append(str(beside))
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # what is imported is a user's code, which may raise anything
        raise UserError(
            f"{where}: {shortened(reference)} cannot be loaded ({type(error).__name__}: {error})"
        ) from error


def _hints(factory: Any) -> dict[str, Any]:
    try:
        annotated = factory.__init__ if inspect.isclass(factory) else getattr(factory, "__wrapped__", factory)
        return typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError):  # names that only a type checker imports: those options go unchecked
        return {}


def _refusal(problems: Sequence[Any], value: Any, hint: Any, where: str) -> str:
    """What is said against ``value``; where it is a mapping, against the first wrong key in it."""
    if isinstance(value, dict) and problems[0]["loc"]:
        key = problems[0]["loc"][0]
        if problems[0]["type"] == "unexpected_keyword_argument":
            sections = [kind for kind in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(kind)]
            known = ", ".join(field.name for kind in sections for field in dataclasses.fields(kind))
            return f"{where}.{key}: unknown; accepted: {known}"
        problems = [problem for problem in problems if problem["loc"][:1] == (key,)]
        where, value = f"{where}.{key}", value.get(key)
    reasons = dict.fromkeys(problem["msg"] for problem in problems)
    return f"{where}: {shortened(value)} is not accepted; {' or '.join(reasons)}"


def _checked(value: Any, hint: Any, where: str) -> Any:
    if not _is_json(value):
        raise UserError(f"{where}: {shortened(value)} is not accepted; {_JSON} are accepted")
    try:
        checked = TypeAdapter(hint).validate_python(value)
    except PydanticUserError:  # a hint that tells pydantic nothing
        return value
    except ValidationError as error:
        raise UserError(_refusal(error.errors(), value, hint, where)) from None
    if isinstance(value, bool) and not isinstance(checked, bool):
        raise UserError(f"{where}: true and false are not accepted; a number is expected")
    return checked
