"""What goes to a worker on another machine and comes back, as JSON text: tasks, evaluations, and what builds its
evaluator. Nothing of it is pickled: what an evaluation says is data, whoever answers. A factory names code of this
installation, which a worker takes from its driver alone."""

import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from pydantic import BaseModel

from diffcredit.execution.tasks import EvaluatorFactory, Task
from diffcredit.ledger import Evaluation, Value


def task_text(task: Task) -> str:
    return json.dumps(dataclasses.asdict(task))


def task_of(text: str) -> Task:
    return Task(**json.loads(text))


def evaluation_text(evaluation: Evaluation) -> str:
    """A float is written with all its digits, so that it comes back bit for bit."""
    return json.dumps(dataclasses.asdict(evaluation))


def evaluation_of(text: str) -> Evaluation:
    fields = json.loads(text)
    values = tuple(Value(**value) for value in fields.pop("values"))
    return Evaluation(values=values, **fields)


def factory_text(factory: EvaluatorFactory) -> str:
    """A factory that consists of a module's functions and classes, methods of objects that say by ``__reduce__`` what
    they are made of (a study: its settings), records and JSON values."""
    return json.dumps(_described(factory))


def factory_of(text: str, places: Mapping[str, str]) -> EvaluatorFactory:
    """The factory, with the paths in ``places``, and all below them, taken from where they lie on this machine."""
    return _made(_relocated(json.loads(text), sorted(places.items(), key=lambda place: -len(place[0]))))


def owner_of(factory: EvaluatorFactory) -> Any:
    """The object whose method the factory is; None where it is no method."""
    return owner_of(factory.func) if isinstance(factory, partial) else getattr(factory, "__self__", None)


def _described(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_described(item) for item in value]
    if kind is tuple:
        return {"tuple": [_described(item) for item in value]}
    if kind is dict:
        return {"mapping": [[_described(key), _described(item)] for key, item in value.items()]}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}  # a worker has another working directory
    if kind is partial:
        return {"partial": _described(value.func), "arguments": _described([list(value.args), value.keywords])}
    if kind is MethodType:
        return {"method": value.__name__, "of": _described(value.__self__)}
    if kind in (FunctionType, type) and "<" not in value.__qualname__:
        return {"named": _name(value)}
    if isinstance(value, BaseModel):
        return {"settings": value.model_dump(mode="json", by_alias=True), "type": _name(kind)}
    if isinstance(vars(kind).get("__reduce__"), FunctionType):
        made_by, arguments = value.__reduce__()
        return {"made by": _name(made_by), "arguments": _described(list(arguments))}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"type": _name(kind), "fields": _described(fields)}
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} does not travel to workers on other machines")


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _made(value: Any) -> Any:
    match value:
        case list():
            return [_made(item) for item in value]
        case {"tuple": items}:
            return tuple(_made(items))
        case {"mapping": items}:
            return {_made(key): _made(item) for key, item in items}
        case {"path": path}:
            return Path(path)
        case {"partial": function, "arguments": arguments}:
            positional, keywords = _made(arguments)
            return partial(_made(function), *positional, **keywords)
        case {"made by": name, "arguments": arguments}:
            return _found(name)(*_made(arguments))
        case {"method": name, "of": owner}:
            return getattr(_made(owner), name)
        case {"named": name}:
            return _found(name)
        case {"settings": settings, "type": name}:
            return _found(name).model_validate(settings)
        case {"type": name, "fields": fields}:
            return _found(name)(**_made(fields))
    return value


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _relocated(value: Any, places: list[tuple[str, str]]) -> Any:
    """``places``: from where to where, the longest path first."""
    if isinstance(value, list):
        return [_relocated(item, places) for item in value]
    if isinstance(value, dict):
        return {key: _relocated(item, places) for key, item in value.items()}
    if isinstance(value, str):
        for there, here in places:
            if value == there or value.startswith(f"{there}/"):
                return here + value[len(there) :]
    return value
