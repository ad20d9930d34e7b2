"""A study file as plain values: YAML, read such that no file, however hostile or mistaken, does harm."""

import re
from pathlib import Path
from typing import Any

import yaml

from diffcredit.errors import UserError

LARGEST_FILE = 1_000_000  # bytes: what is larger is something else, given by mistake
MOST_VALUES = 10_000  # in a file, an alias counted as often as it is used


class _Loader(yaml.SafeLoader):
    """YAML's safe subset, where a key given twice is an error and ``1e-4`` a number."""

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


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), "-+0123456789")


def read_yaml(file: Path) -> Any:
    """The file's content; a UserError where it is no YAML, or more of it than any study needs."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file}: cannot be read ({reason}); a study file is expected") from None
    if len(data) > LARGEST_FILE:
        raise UserError(f"{file}: over {LARGEST_FILE:,} bytes; a study file is expected")
    try:
        content = _Loader(text).get_single_data()
    except Exception as error:  # a value that does not fit its tag raises more than YAML's own errors
        raise UserError(f"{file}: not valid YAML ({_place(error)})") from None
    if _has_too_many_values(content):
        raise UserError(f"{file}: over {MOST_VALUES:,} values, aliases counted; a study file is expected")
    return content


def _place(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())


def _has_too_many_values(content: Any) -> bool:
    """Whether the content, written out without aliases, would be longer than any study's; it may be endless."""
    remaining, count = [content], 0
    while remaining and count <= MOST_VALUES:
        value = remaining.pop()
        count += 1
        if isinstance(value, dict):
            remaining += [*value, *value.values()]
        elif isinstance(value, list | tuple | set):
            remaining += value
    return count > MOST_VALUES
