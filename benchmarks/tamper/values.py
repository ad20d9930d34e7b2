"""Other contents for a column: of another type, next to the old one, of another row, spelled otherwise."""

import json
from collections.abc import Callable
from random import Random
from typing import Any


class Impossible(Exception):
    """A change that cannot be made to this copy, or that changes nothing: another one is drawn."""


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63 - 1, -(2**63), 2**63, 10**30),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")),
    *("", " ", "x", "0", "1.5", "NaN", "Infinity", "null", "true", "[]", "{}", '"x"', "ä", "a\u0308", "\u202eevil"),
    *("\x1b[2J", "a\x00b", "a\nb", "x" * 5000, "done", "failed", "estimate", "pilot", "truth", "reference", "00000"),
    *("11111", "01", "2025-01-01", "2025-01-01T00:00:00+00:00", b"", b"x", b"{}", b"\xff\xfe"),
)


def other_value(old: Any, others: list[Any], random: Random) -> Any:
    """Draw a value that is not ``old``; ``others`` are those of the same column in other rows."""
    makers: list[Callable[[], Any]] = [
        lambda: random.choice(ODD),
        lambda: random.choice(others),
        lambda: _near(old, random),
    ]
    for _ in range(50):
        value = random.choice(makers)()
        if type(value) is not type(old) or repr(value) != repr(old):
            return value
    return "another"


def _near(old: Any, random: Random) -> Any:
    """Return a value that is nearly the old one."""
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, int):
        return old + random.choice([-1, 1, 10, 2**32])
    if isinstance(old, float):
        return random.choice([-old, old * (1 + 2**-52), old + 1, old * 10, old / 2, round(old, 6), int(old), str(old)])
    if isinstance(old, str) and old:
        place = random.randrange(len(old))
        return random.choice(
            [
                old + " ",
                " " + old,
                old[:-1],
                old.upper(),
                old.encode(),
                old[:place] + chr(ord(old[place]) ^ 1) + old[place + 1 :],
                old[:place] + old[place + 1 :],
                old + "\x00",
                old[::-1],
            ]
        )
    return "x"


def other_json(old: str, random: Random) -> str:
    """Return another JSON text: other content, or the same spelled otherwise."""
    value = json.loads(old)
    return random.choice([_another_content, _another_spelling])(value, old, random)


def parsed(text: str) -> Any:
    """Return what a JSON text says, where it says anything."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Impossible from error


def _another_content(value: Any, old: str, random: Random) -> str:
    """Replace, remove or add one value, at any depth; or exchange two."""
    places = list(_places(value))
    if not places:
        return '{"x":1}'
    holder, key = random.choice(places)
    act = random.choice(["replace", "replace", "replace", "remove", "add", "exchange"])
    if act == "replace":
        inner = holder[key]
        simple = isinstance(inner, dict | list) or random.random() < 0.3
        holder[key] = random.choice([None, 0, 1.5, "x", [], {}, True, 10**40]) if simple else _near_json(inner, random)
    elif act == "remove":
        del holder[key]
    elif act == "add" and isinstance(holder, dict):
        holder[random.choice(["x", "zzz", "0", ""])] = random.choice([None, 1, "x", {}])
    else:
        other, place = random.choice(places)
        try:
            holder[key], other[place] = other[place], holder[key]
            return _dumped(value)
        except (ValueError, RecursionError):  # one contains the other
            return "{}"
    return _dumped(value)


def _near_json(old: Any, random: Random) -> Any:
    near = _near(old, random)
    return near.decode(errors="replace") if isinstance(near, bytes) else near


def _another_spelling(value: Any, old: str, random: Random) -> str:
    """Return the same JSON in another text: spaces, order and repetition of keys, escapes, numbers."""
    ways: list[Callable[[], str]] = [
        lambda: json.dumps(value, sort_keys=True, ensure_ascii=False),
        lambda: json.dumps(value, indent=1, sort_keys=True),
        lambda: _dumped(value, keep=True, turn=random),
        lambda: old + " ",
        lambda: "\n" + old,
        lambda: "\ufeff" + old,
        lambda: '{"zzz":1,' + old[1:],
        lambda: _twice(value, old, random),
        lambda: old.replace(":0,", ":-0,", 1),
        lambda: old.replace(".0", ".00", 1),
        lambda: old.replace(".0", "", 1),
        lambda: old.replace(":1,", ":1.0,", 1),
        lambda: old.replace(":2,", ":2e0,", 1),
        lambda: old.replace("e", "\\u0065", 1),
        lambda: old.replace("null", "NaN", 1),
        lambda: old[: random.randrange(len(old))],
        lambda: f"[{old}]",
        lambda: json.dumps(old),
        lambda: old.replace('"', "'", 2),
        lambda: old[:-1] + ",}",
        lambda: "[" * 100_000,
        lambda: old.replace("true", "1", 1),
        lambda: old.replace("a", "\ud83d", 1).encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        lambda: old.replace("a", "\\ud83d", 1),
    ]
    for _ in range(50):
        if (text := random.choice(ways)()) != old:
            return text
    return old + " "


def _twice(value: Any, old: str, random: Random) -> str:
    """Return an object's text with one of its keys there twice; readers take the last."""
    if not isinstance(value, dict) or not value:
        return old + " "
    key = random.choice(list(value))
    again = f"{json.dumps(key)}:{random.choice(['null', '9', json.dumps(value[key])])}"
    return "{" + again + "," + old[1:] if random.random() < 0.5 else old[:-1] + "," + again + "}"


def _places(value: Any) -> Any:
    """Yield each mapping or list with each of its keys, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _dumped(value: Any, *, keep: bool = False, turn: Random | None = None) -> str:
    if keep and isinstance(value, dict) and turn is not None:
        keys = list(value)
        turn.shuffle(keys)
        value = {key: value[key] for key in keys}
    return json.dumps(value, sort_keys=not keep, separators=(",", ":"), ensure_ascii=False)
