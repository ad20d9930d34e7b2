"""From a name in a study file to an object: ours by their short names, users' as ``package.module:Class``."""

import dataclasses
import importlib
import inspect
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from diffcredit.errors import UserError


def build(reference: str, options: Mapping[str, Any], registry: Mapping[str, str], *, where: str, beside: Path) -> Any:
    """The object that ``reference`` names, made with ``options``.

    ``registry`` maps our short names to their classes; anything with a colon is a plug-in, looked for beside
    the study file as well as among the installed packages. Options are checked against the annotations of the
    class, and ``where`` (file and key) starts every error.
    """
    factory = _load(reference, registry, where, beside)
    signature = inspect.signature(factory)
    accepted = [name for name in signature.parameters if name not in ("args", "kwargs")]
    for name in options:
        if name not in accepted:
            raise UserError(f"{where}.{name}: unknown; {reference} accepts {', '.join(accepted) or 'no options'}")
    for name, parameter in signature.parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if needed and name not in options:
            raise UserError(f"{where}.{name}: missing; {reference} needs it")
    hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory, include_extras=True)
    values = {name: _checked(value, hints.get(name, Any), f"{where}.{name}") for name, value in options.items()}
    return factory(**values)


def settings_of(component: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What fixes a component's numbers: all fields of a dataclass, or else the options it was given."""
    return dataclasses.asdict(component) if dataclasses.is_dataclass(component) else dict(options)


def _load(reference: str, registry: Mapping[str, str], where: str, beside: Path) -> Any:
    module_name, colon, attribute = registry.get(reference, reference).partition(":")
    if not colon:
        raise UserError(
            f"{where}: {reference!r} is unknown; accepted: {', '.join(registry)}, or a plug-in 'package.module:Class'"
        )
    if str(beside) not in sys.path:
        sys.path.append(str(beside))
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{where}: {reference!r} cannot be loaded ({error})") from error


def _checked(value: Any, hint: Any, where: str) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        reasons = dict.fromkeys(problem["msg"] for problem in error.errors())
        raise UserError(f"{where}: {value!r} is not accepted; {' or '.join(reasons)}") from None
