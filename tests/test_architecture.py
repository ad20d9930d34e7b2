"""The rules of the house: who may import whom, and what stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import diffcredit
from planted_study import additive, plant

SOURCE = Path(diffcredit.__file__).parent

FOUNDATION = (
    "errors",
    "artifacts",
    "events",
    "seeds",
    "stores",
    "progress",
    "shown",
    "yamlfile",
    "csvtext",
    "plugins",
    "pictures",
)
ROOMS = (
    "contributions",
    "diffusion",
    "coalitions",
    "retraining",
    "features",
    "properties",
    "surrogates",
    "ledger",
    "execution",
    "credit",
    "baselines",
    "validation",
    "report",
    "testing",
    "cli",
)
ASSEMBLY = (
    "comparing",
    "config",
    "contest",
    "cooperation",
    "pilot",
    "preparation",
    "quality",
    "recomputing",
    "remeasuring",
    "schedule",
    "study",
    "study_baselines",
    "study_surrogates",
    "study_validation",
    "truth",
    "worker_files",
)  # these may import any room
AFTER_ASSEMBLY = ("report", "testing", "cli")  # and these may import them


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that the code imports, those for type checkers left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            if node.module == "diffcredit":
                yield from (f"diffcredit.{alias.name}" for alias in node.names)
            else:
                yield node.module
        yield from imports(node)


def home_of(module: str) -> str:
    """``diffcredit.ledger.store`` lives in ``ledger``."""
    return module.split(".")[1]


def allowed(importer: str) -> set[str]:
    if importer in FOUNDATION:
        return {*FOUNDATION}
    if importer in ASSEMBLY:
        return {*FOUNDATION, *ROOMS, *ASSEMBLY} - {"cli"}
    above = ROOMS[: ROOMS.index(importer) + 1]
    return {*FOUNDATION, *above, *(ASSEMBLY if importer in AFTER_ASSEMBLY else ())}


FILES = sorted(file for file in SOURCE.rglob("*.py") if file.name != "__init__.py" or file.parent != SOURCE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_imports_only_what_is_above(file):
    importer = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if importer == "__main__":
        importer = "cli"
    assert importer in (*FOUNDATION, *ROOMS, *ASSEMBLY), f"{importer} has no place in the house"
    ours = {name for name in imports(ast.parse(file.read_text(encoding="utf-8"))) if name.startswith("diffcredit.")}
    assert {name for name in ours if home_of(name) not in allowed(importer)} == set()


def test_the_check_sees_imports_wherever_they_are():
    code = "import typing\nif TYPE_CHECKING:\n    import a\ndef f():\n    from diffcredit import study\n"
    assert set(imports(ast.parse(code))) == {"typing", "diffcredit.study"}
    assert "study" not in allowed("ledger")
    assert "credit" not in allowed("ledger")


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
    assert loaded(code + ", torch", HEAVY) >= {"torch"}  # so that the check above could have failed


RUN = """
import sys
sys.argv = ['diffcredit', *{!r}]
from diffcredit.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["init", "--help"], ["compare", "--help"]]
)
def test_help_loads_nothing_heavy(arguments):
    assert loaded(RUN.format(arguments), HEAVY) == set()


def test_reading_a_ledger_loads_no_torch(finished):
    for command in ("status", "credits"):
        assert loaded(RUN.format([command, str(finished)]), {*HEAVY, "numpy"}) == {"numpy"}


def test_comparing_ledgers_loads_no_torch(tmp_path):
    for name in ("a", "b"):
        plant(tmp_path / name, ("ann", "bob", "cy"), {"fid": additive([1.0, 2.0, 3.0])})
    arguments = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert loaded(RUN.format(arguments), {*HEAVY, "numpy"}) == {"numpy"}


def test_every_public_name_is_there():
    for name in diffcredit.__all__:
        assert getattr(diffcredit, name).__name__ == name
    assert sorted(diffcredit.__all__) == sorted(diffcredit._HOMES)
    with pytest.raises(AttributeError, match="no attribute 'Stduy'"):
        _ = diffcredit.Stduy
