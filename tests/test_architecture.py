"""The rules of the house: who may import whom, and what stays light."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import diffcredit
from planted_study import additive, plant

SOURCE = Path(diffcredit.__file__).parent

ROOMS = (
    "util",
    "contributions",
    "coalitions",
    "proofs",
    "ledger",
    "credit",
    "diffusion",
    "retraining",
    "features",
    "properties",
    "surrogates",
    "execution",
    "study",
    "baselines",
    "validation",
    "payout",
    "report",
    "testing",
    "cli",
)
BESIDE = ("__init__.py", "__main__.py", "errors.py", "py.typed")
MOST_EDGES = 110


def imports(tree: ast.AST, *, typed: bool = False) -> Iterator[str]:
    """The modules that the code imports; ``typed``: those for type checkers too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not typed:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if is_module(name) else node.module for name in names)
        yield from imports(node, typed=typed)


def is_module(name: str) -> bool:
    """Whether ``name``, which an import names, is a module of ours and not something in one."""
    place = SOURCE.parent.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def home_of(module: str) -> str:
    """``diffcredit.ledger.store`` lives in ``ledger``."""
    return module.split(".")[1]


FILES = sorted(SOURCE.rglob("*.py"))


def room_edges(*, typed: bool = False) -> set[tuple[str, str]]:
    """Which room imports which other one, lazily or at once; ``typed``: for a type checker too."""
    edges = set()
    for file in FILES:
        importer = file.relative_to(SOURCE).parts[0]
        if importer in ROOMS:
            found = imports(ast.parse(file.read_text(encoding="utf-8")), typed=typed)
            homes = {home_of(name) for name in found if name.startswith("diffcredit.")}
            edges |= {(importer, home) for home in homes & set(ROOMS) - {importer}}
    return edges


def test_nothing_stands_beside_the_rooms():
    found = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"}
    assert found == {*ROOMS, *BESIDE}


def test_rooms_import_only_rooms_above_them():
    below = {(a, b) for a, b in room_edges(typed=True) if ROOMS.index(b) > ROOMS.index(a)}
    assert below == set()


def test_rooms_know_few_others():
    assert len(room_edges()) <= MOST_EDGES


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_each_other_in_a_circle():
    modules = {module_of(file): file for file in FILES if file.parent != SOURCE}
    graph = {
        name: {found for found in imports(ast.parse(file.read_text(encoding="utf-8"))) if found in modules} - {name}
        for name, file in modules.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_check_sees_imports_wherever_they_are():
    code = "import typing\nif TYPE_CHECKING:\n    import a\ndef f():\n    from diffcredit import study\n"
    assert set(imports(ast.parse(code))) == {"typing", "diffcredit.study"}
    assert set(imports(ast.parse(code), typed=True)) == {"typing", "a", "diffcredit.study"}


def loaded(code: str, names: set[str]) -> set[str]:
    """Which of ``names`` a fresh interpreter has imported after running ``code``."""
    script = f"{code}\nimport sys\nprint('LOADED', *sorted({names!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    line = next(line for line in result.stdout.splitlines() if line.startswith("LOADED"))
    return set(line.split()[1:])


HEAVY = {"torch", "diffusers", "torch_pruning", "sklearn", "matplotlib", "transformers"}


def test_the_package_costs_nothing_until_used():
    assert loaded("import diffcredit", {*HEAVY, "numpy", "scipy", "pydantic", "sqlalchemy"}) == set()


def test_numbers_need_no_torch():
    code = "import diffcredit.credit, diffcredit.coalitions, diffcredit.validation.statistics"
    assert loaded(code, {*HEAVY, "PIL", "sqlalchemy"}) == set()
    assert loaded("import PIL", {"PIL"}) == {"PIL"}  # so that the check above could have failed


RUN = """
import sys
from diffcredit.cli import main
for arguments in {!r}:
    sys.argv = ['diffcredit', *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""


def test_help_loads_nothing_heavy():
    arguments = [["--help"], ["--version"], ["run", "--help"], ["init", "--help"], ["compare", "--help"]]
    assert loaded(RUN.format(arguments), HEAVY) == set()


def test_reading_and_comparing_ledgers_loads_no_torch(finished, tmp_path):
    for name in ("a", "b"):
        plant(tmp_path / name, ("ann", "bob", "cy"), {"fid": additive([1.0, 2.0, 3.0])})
    arguments = [["status", str(finished)], ["credits", str(finished)]]
    arguments.append(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert loaded(RUN.format(arguments), {*HEAVY, "numpy"}) == {"numpy"}


def test_every_public_name_is_there():
    for name in diffcredit.__all__:
        assert getattr(diffcredit, name).__name__ == name
    assert sorted(diffcredit.__all__) == sorted(diffcredit._HOMES)
    with pytest.raises(AttributeError, match="no attribute 'Stduy'"):
        _ = diffcredit.Stduy


PAGE = (Path(__file__).parent.parent / "docs/architecture.md").read_text(encoding="utf-8")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_lists_every_room_and_file_in_order():
    rows = [cells(line) for line in PAGE.splitlines() if re.match(r"\| `\w+/` \|", line)]
    assert [row[0].strip("`/") for row in rows] == list(ROOMS)
    for room, _, listed in rows:
        named = set()
        for part in listed.split("; "):
            folder, names = re.fullmatch(r"(?:`([\w/]+)/`: )?(.*)", part).groups()
            named |= {f"{folder}/{name}" if folder else name for name in re.findall(r"`(\w+)`", names)}
        home = SOURCE / room.strip("`/")
        files = {file.relative_to(home).with_suffix("").as_posix() for file in home.rglob("*.py")}
        assert named == {name for name in files if not name.endswith("__init__")}


def test_the_page_follows_one_evaluation_through_at_most_eight_files():
    hops = [cells(line) for line in PAGE.splitlines() if re.match(r"\| \d \|", line)]
    assert 1 < len(hops) <= 8
    for _, file, what in hops:
        code = (SOURCE / file.strip("`")).read_text(encoding="utf-8")
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", what):
            assert re.search(rf"\b{name}\b", code), f"{file} has no {name}"
