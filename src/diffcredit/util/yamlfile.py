"""Study files: YAML, read such that no file, however hostile or mistaken, does harm."""

import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from diffcredit.errors import UserError
from diffcredit.util.sanitize import truncated

LARGEST_FILE = 1_000_000  # bytes; a larger file was given by mistake
MOST_VALUES = 10_000  # in a file; an alias counts as often as it is used
DEEPEST = 50  # levels of nesting
LONGEST_NUMBER = 100  # characters; converting longer ones from YAML's base 60 takes minutes
LONGEST_REASON = 300  # characters of an error's text


class _TooLarge(Exception):
    """The text has too many values, perhaps infinitely many by aliases, or nests them too deeply."""


class _Loader(yaml.SafeLoader):
    """YAML's safe subset, where a key given twice is an error and ``1e-4`` is a number.

    Limits are checked while the text is read, before any of it becomes a value: merging mappings by ``<<`` copies them.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._nodes += 1
        self._depth += 1
        if self._nodes > MOST_VALUES:
            raise _TooLarge(f"over {MOST_VALUES:,} values, aliases counted")
        if self._depth > DEEPEST:
            raise _TooLarge("not valid YAML (nested too deeply)")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _written_out(node, {}) > MOST_VALUES:
            raise _TooLarge(f"over {MOST_VALUES:,} values, aliases counted")
        return node

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        if len(node.value) > LONGEST_NUMBER:
            raise yaml.MarkedYAMLError(
                problem=f"a number of {len(node.value):,} characters; at most {LONGEST_NUMBER} are accepted",
                problem_mark=node.start_mark,
            )
        whole = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


for kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{kind}", _Loader.construct_number)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), "-+0123456789")


def read_yaml(file: Path, expected: str = "a study file") -> Any:
    """Return the file's content. Raise a UserError where it is no YAML, or larger than any study needs; it says what is
    ``expected``."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file}: cannot be read ({reason}); {expected} is expected") from None
    if len(data) > LARGEST_FILE:
        raise UserError(f"{file}: over {LARGEST_FILE:,} bytes; {expected} is expected")
    return parse_yaml(text, file)


def parse_yaml(text: str, where: object) -> Any:
    """Return the values of a YAML text, as safely; ``where`` starts every error."""
    try:
        return _Loader(text).get_single_data()
    except _TooLarge as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:  # a value that does not fit its tag raises other errors than YAML's own
        reason = error
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            reason = f"line {error.problem_mark.line + 1}: {error.problem}"
        # in one line, and cut where it repeats a long text of the file
        short = truncated(" ".join(str(reason).split()), LONGEST_REASON)
        raise UserError(f"{where}: not valid YAML ({short})") from None


def with_item(text: str, key: str, item: Any) -> str:
    """Return a study file's text with ``item`` added to its list ``key``; all else, comments too, stays as it is.
    Raises a ValueError where there is no such list, or where no item can be added to the way it is written."""
    node = _list_of(text, key)
    line = yaml.safe_dump([item], default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000).strip()
    line = line[1:-1]
    expected = dict(_Loader(text).get_single_data())
    expected[key] = [*expected[key], item]
    start, end = node.value[-1].start_mark.index, node.value[-1].end_mark.index
    if node.flow_style:
        places, added = [end], f", {line}"
    else:
        # YAML ends an item where the next key begins: try after its last line that is no comment, then after its last
        places = [_line_end(text, start, end, comments) for comments in (False, True)]
        newline = "\r\n" if "\r\n" in text else "\n"
        added = f"{newline}{' ' * node.start_mark.column}- {line}"
    for place in places:
        changed = text[:place] + added + text[place:]
        with suppress(yaml.YAMLError):
            if _Loader(changed).get_single_data() == expected:
                return changed
    raise ValueError(f"the list {key} is written in a way that no item can be added to")


def without_item(text: str, key: str, index: int) -> str:
    """Return a study file's text without the item at ``index`` of its list ``key``; all else stays as it is. Raises a
    ValueError where there is no such list, or no item can be taken out of it."""
    node = _list_of(text, key)
    expected = dict(_Loader(text).get_single_data())
    expected[key] = [item for place, item in enumerate(expected[key]) if place != index]
    start, end = node.value[index].start_mark.index, node.value[index].end_mark.index
    if node.flow_style:
        following = re.match(r"\s*,\s*", text[end:])
        before = re.search(r"\s*,\s*$", text[:start])
        cuts = [(start, end + following.end())] if following else [(before.start() if before else start, end)]
    else:
        first = text.rfind("\n", 0, start) + 1
        lasts = [_line_end(text, start, end, comments) for comments in (False, True)]
        cuts = [(first, text.find("\n", last) + 1 or len(text)) for last in lasts]
    for first, last in cuts:
        changed = text[:first] + text[last:]
        with suppress(yaml.YAMLError):
            if _Loader(changed).get_single_data() == expected:
                return changed
    raise ValueError(f"the list {key} is written in a way that no item can be taken out of")


def _list_of(text: str, key: str) -> Any:
    root = yaml.compose(text, _Loader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    node = next((value for name, value in pairs if name.value == key), None)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise ValueError(f"no list {key}")
    return node


def _line_end(text: str, start: int, end: int, comments: bool) -> int:
    """Return where the last line of text[start:end] ends that is not blank and, unless ``comments``, no comment."""
    last = start
    for line in re.finditer(r"[^\r\n]+", text[start:end]):
        content = line.group().strip()
        if content and (comments or not content.startswith("#")):
            last = start + line.end()
    rest = re.match(r"[^\r\n]*", text[last:])  # a comment on the same line
    return last + (rest.end() if rest else 0)


def _written_out(node: yaml.Node, known: dict[int, float]) -> float:
    """Return how many values ``node`` would be without aliases: infinitely many where it contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is counted, so that an alias to itself from within counts as infinite
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        known[id(node)] = 1 + sum(_written_out(part, known) for part in parts)
    return known[id(node)]
