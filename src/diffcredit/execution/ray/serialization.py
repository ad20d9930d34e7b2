"""Evaluations and evaluator factories as JSON text, for workers on other machines.

Nothing is pickled: an evaluation is data, whoever sends it. A factory names code of this installation, which a worker
accepts from its driver alone.
"""

import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from diffcredit.execution.tasks import EvaluatorFactory
from diffcredit.ledger import Evaluation, Value


def evaluation_text(evaluation: Evaluation) -> str:
    """Write an evaluation; floats have all their digits, so that they are read back bit for bit."""
    return json.dumps(dataclasses.asdict(evaluation))


def evaluation_of(text: str) -> Evaluation:
    fields = json.loads(text)
    values = tuple(Value(**value) for value in fields.pop("values"))
    return Evaluation(values=values, **fields)


def factory_text(factory: EvaluatorFactory) -> str:
    """Write a factory. It may consist of a module's functions and classes, methods of objects that define
    ``__reduce__`` (a study: its settings), dataclasses and JSON values; TypeError for anything else."""
    return json.dumps(_encoded(factory))


def factory_of(text: str, places: Mapping[str, str]) -> EvaluatorFactory:
    """Read a factory. ``places`` maps paths to where they are on this machine; paths below them follow."""
    return _decoded(_relocated(json.loads(text), sorted(places.items(), key=lambda place: -len(place[0]))))


def owner_of(factory: EvaluatorFactory) -> Any:
    """Return the object whose method the factory is; None if it is no method."""
    if isinstance(factory, partial):
        return owner_of(factory.func)
    return factory.__self__ if isinstance(factory, MethodType) else None


def _encoded(value: Any) -> Any:
    from pydantic import BaseModel  # only drivers need it

    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_encoded(item) for item in value]
    if kind is tuple:
        return {"tuple": [_encoded(item) for item in value]}
    if kind is dict:
        return {"mapping": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}  # a worker has another working directory
    if kind is partial:
        return {"partial": _encoded(value.func), "arguments": _encoded([list(value.args), value.keywords])}
    if kind is MethodType:
        return {"method": value.__name__, "of": _encoded(value.__self__)}
    if (kind is FunctionType or isinstance(value, type)) and "<" not in value.__qualname__:
        return {"named": _name(value)}
    if isinstance(value, BaseModel):
        return {"settings": value.model_dump(mode="json", by_alias=True), "type": _name(kind)}
    if isinstance(vars(kind).get("__reduce__"), FunctionType):
        made_by, arguments = value.__reduce__()
        return {"made by": _name(made_by), "arguments": _encoded(list(arguments))}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"type": _name(kind), "fields": _encoded(fields)}
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be sent to workers on other machines")


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _decoded(value: Any) -> Any:
    match value:
        case list():
            return [_decoded(item) for item in value]
        case {"tuple": items}:
            return tuple(_decoded(items))
        case {"mapping": items}:
            return {_decoded(key): _decoded(item) for key, item in items}
        case {"path": path}:
            return Path(path)
        case {"partial": function, "arguments": arguments}:
            positional, keywords = _decoded(arguments)
            return partial(_decoded(function), *positional, **keywords)
        case {"made by": name, "arguments": arguments}:
            return _named(name)(*_decoded(arguments))
        case {"method": name, "of": owner}:
            return getattr(_decoded(owner), name)
        case {"named": name}:
            return _named(name)
        case {"settings": settings, "type": name}:
            return _named(name).model_validate(settings)
        case {"type": name, "fields": fields}:
            return _named(name)(**_decoded(fields))
    return value


def _named(name: str) -> Any:
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _relocated(value: Any, places: list[tuple[str, str]]) -> Any:
    """Replace paths by ``places``: (there, here), the longest first."""
    if isinstance(value, list):
        return [_relocated(item, places) for item in value]
    if isinstance(value, dict):
        return {key: _relocated(item, places) for key, item in value.items()}
    if isinstance(value, str):
        for there, here in places:
            if value == there or value.startswith(f"{there}/"):
                return here + value[len(there) :]
    return value
