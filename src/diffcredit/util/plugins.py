"""Names in a study file to objects: a built-in by its short name, a user's class as ``package.module:Class``.

A study file says for instance::

    properties:
      - colourfulness                      # built in
      - {name: mine:Warmth, strength: 2.5} # the class Warmth of mine.py, beside the study file or installed

:func:`build` finds the class, checks the options against its annotations and calls it with them. Whatever is wrong
becomes one line that names the file and the key. :func:`settings_of` then returns what determines the object's numbers,
to be recorded in the ledger: its options and, for a plug-in, the hash of its code.

A plug-in is a program: its file runs only where the user allowed it (:mod:`diffcredit.util.consent`), wherever it is.
A study file that names a function of an installed package, such as ``subprocess:run``, is refused by the same rule.
"""

import dataclasses
import importlib
import inspect
import sys
import traceback
import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from diffcredit.errors import DiffcreditError, UserError, located
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.consent import NO_PLUGINS, all_allowed, code_hash, is_allowed, plugins_off, require
from diffcredit.util.guarded import guard
from diffcredit.util.plugin_code import plugin_file
from diffcredit.util.sanitize import LONGEST_VALUE, shortened

NEWER: Mapping[str, bool] = {"newer": True}
"""Metadata of a field that came after ledgers had been written: at its default it is not recorded, so that they go
on."""
_JSON = "texts, finite numbers, true, false, null, lists and mappings of them"


def build(
    reference: str,
    options: Mapping[str, Any],
    registry: Mapping[str, str],
    *,
    where: str,
    beside: Path,
    of_function: Callable[[Any], Callable[..., Any]] | None = None,
) -> Any:
    """Make the object that ``reference`` names.

    :param options: the keyword arguments it is made with, from the study file.
    :param registry: the built-in classes, as ``module:Class`` by short name. A reference with a colon is a plug-in.
    :param where: the file and key, with which every error starts.
    :param beside: the study file's folder, where plug-ins are looked for as well as among installed packages.
    :param of_function: turns a plain function into a factory, where functions are accepted.
    """
    factory = _load(reference, registry, where, beside)
    if of_function is not None and inspect.isfunction(factory):
        with located(f"{where}: {shortened(reference)}"):
            factory = of_function(factory)
    _check_names(factory, reference, options, where)
    hints = _hints(factory)
    values = {name: _checked(value, hints.get(name, Any), f"{where}.{name}") for name, value in options.items()}
    try:
        component = factory(**values)
    except (TypeError, ValueError) as error:  # the class refuses options that its annotations allow
        raise UserError(f"{where}: {shortened(dict(options))} is not accepted by {reference}; {error}") from error
    if not _is_json(settings_of(component, options)):
        raise UserError(f"{where}: {reference} has fields that the ledger cannot keep; {_JSON} are accepted")
    return component


def settings_of(component: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what determines a component's numbers, for the ledger: all fields of a dataclass, else the options it was
    made with; and the code of a plug-in."""
    written = getattr(component, "__wrapped__", component)  # a component may stand for a user's own object
    if dataclasses.is_dataclass(written) and not isinstance(written, type):
        settings = _without_newer(dataclasses.asdict(written), written)
    else:
        settings = dict(options)
    return {**settings, **code_of(component)}


def _without_newer(settings: dict[str, Any], written: Any) -> dict[str, Any]:
    """Return the ``settings`` of a dataclass without the newer fields that have their defaults, at any depth."""
    kept = dict(settings)
    for field in dataclasses.fields(written):
        value = getattr(written, field.name)
        if field.metadata.get("newer") and value == field.default:
            del kept[field.name]
        elif dataclasses.is_dataclass(value):
            kept[field.name] = _without_newer(kept[field.name], value)
    return kept


def code_of(component: Any) -> dict[str, str]:
    """Return the hash of a plug-in's file, so that a changed program is not mistaken for the old one; nothing for our
    own classes, whose version is that of the package."""
    written = getattr(component, "__wrapped__", type(component))  # a component may stand for a plain function
    module = sys.modules[written.__module__]
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] == "diffcredit":
        return {}
    return {"code": code_hash(Path(file))}


def refuse_plugin(reference: str, where: str) -> None:
    """Raise a UserError where ``reference`` is a plug-in and plug-ins are switched off."""
    if ":" in reference and plugins_off():
        raise UserError(
            f"{where}: {shortened(reference)} is a plug-in, and they are off (--no-plugins or {NO_PLUGINS})"
        )


def require_allowed(reference: str, where: str, beside: Path) -> None:
    """Raise a UserError where ``reference`` is a plug-in that the user has not allowed. One that is not here passes."""
    refuse_plugin(reference, where)
    if ":" in reference and (file := plugin_file(reference, beside)) is not None:
        require(file, code_hash(file), f"{where}: {shortened(reference)}")


@contextmanager
def in_plugin(what: str) -> Generator[None]:
    """Turn whatever a user's code raises into one line that starts with ``what`` and names the place in the code."""
    try:
        yield
    except DiffcreditError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise DiffcreditError(
            f"{what} raised {type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        ) from error


class Adapted:
    """A plug-in that inherits from none of our base classes, with their defaults: ``class AdaptedProperty(Adapted,
    Property)``. Members are looked up each time, since some change when it is fitted. Wrapping changes no
    fingerprint."""

    def __init__(self, wrapped: Any) -> None:
        self.__wrapped__ = wrapped

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            with suppress(AttributeError):
                return getattr(object.__getattribute__(self, "__wrapped__"), name)
        return super().__getattribute__(name)


def overridden(method: Callable[..., Any], default: Callable[..., Any]) -> bool:
    """Whether a bound ``method`` is another one than the base class's ``default``."""
    return getattr(method, "__func__", None) is not default


def missing_members(component: Any, base: type, required: Sequence[str]) -> list[str]:
    """Return those of the ``required`` members that the class of ``component`` neither defines nor annotates. The
    object itself is not asked: its members may need a loaded network."""
    kind, nothing = type(component), object()
    annotated = {name for each in kind.__mro__ if each is not base for name in vars(each).get("__annotations__", ())}

    def defined(name: str) -> bool:
        defaults = (nothing, inspect.getattr_static(base, name, nothing))
        return inspect.getattr_static(kind, name, nothing) not in defaults

    return [name for name in required if name not in annotated and not defined(name)]


def _load(reference: str, registry: Mapping[str, str], where: str, beside: Path) -> Any:
    """Import what a reference names."""
    module_name, colon, attribute = registry.get(reference, reference).partition(":")
    if not colon:
        raise UserError(
            f"{where}: {shortened(reference)} is unknown; accepted: {', '.join(registry)}, or a plug-in "
            "'package.module:Class'"
        )
    if reference not in registry:
        require_allowed(reference, where, beside)
        # only for a plug-in: otherwise modules beside a stranger's study file could replace packages we do not have
        guard(beside)
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except DiffcreditError as error:
        raise UserError(f"{where}: {shortened(reference)}: {error}") from error
    except Exception as error:  # importing runs a user's code, which may raise anything
        raise UserError(
            f"{where}: {shortened(reference)} cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    if reference not in registry and not all_allowed():
        _check_home(module_name, factory, f"{where}: {shortened(reference)}")
    return factory


def _check_home(module_name: str, factory: Any, what: str) -> None:
    """Refuse a plug-in of a module without a file, which nobody can have allowed, and what an allowed module has only
    imported from another package, as many import ``subprocess.run``."""
    homes = [module_name]
    if inspect.isclass(factory) or inspect.isroutine(factory):
        homes.append(getattr(factory, "__module__", None) or "builtins")
    for home in homes:
        file = Path(getattr(sys.modules.get(home), "__file__", None) or "")
        ours = home != module_name and home.partition(".")[0] == module_name.partition(".")[0]
        if not file.is_file() or not (ours or is_allowed(code_hash(file))):
            raise UserError(f"{what} is code of the module {home!r}, which you have not allowed; name its own module")


def _check_names(factory: Any, reference: str, options: Mapping[str, Any], where: str) -> None:
    """Refuse options that ``factory`` does not take, and missing ones that it needs."""
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


def _hints(factory: Any) -> dict[str, Any]:
    """Return the annotations of a factory's parameters; none where they name what only a type checker imports."""
    try:
        annotated = factory.__init__ if inspect.isclass(factory) else getattr(factory, "__wrapped__", factory)
        return typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError):
        return {}


def _checked(value: Any, hint: Any, where: str) -> Any:
    """Return an option's value, converted to its annotation ``hint``."""
    if not _is_json(value):
        raise UserError(f"{where}: {shortened(value)} is not accepted; {_JSON} are accepted")
    try:
        checked = TypeAdapter(hint).validate_python(value)
    except PydanticUserError:  # an annotation that pydantic does not understand
        return value
    except ValidationError as error:
        raise UserError(_refusal(error.errors(), value, hint, where)) from None
    if isinstance(value, bool) and not isinstance(checked, bool):
        raise UserError(f"{where}: true and false are not accepted; a number is expected")
    return checked


def _is_json(value: Any) -> bool:
    """Return whether the ledger can keep ``value`` and fingerprint it."""
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError):
        return False
    return True


def _refusal(problems: Sequence[Any], value: Any, hint: Any, where: str) -> str:
    """Return the message that refuses ``value`` or, where it is a mapping, the first wrong key in it."""
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
