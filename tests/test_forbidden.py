"""What no code here may do: read objects from files by running code, or take text for a program."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(file for room in ("src", "studies", "benchmarks") for file in (ROOT / room).rglob("*.py"))

MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
HARMLESS = {"UnpicklingError"}  # what torch raises when it refuses a pickle
CALLS = {"eval", "exec", "compile", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "os.system"}
REQUIRED = {"torch.load": ("weights_only", True)}
FORBIDDEN = {("allow_pickle", True), ("shell", True), ("trust_remote_code", True), ("weights_only", False)}


def offences(code: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in HARMLESS]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {word.arg: getattr(word.value, "value", ...) for word in node.keywords}
            found += [name] if name in CALLS else []
            found += [f"{name}({key}={value})" for key, value in given.items() if (key, value) in FORBIDDEN]
            if name in REQUIRED and REQUIRED[name] not in given.items():
                found.append(f"{name} without {REQUIRED[name][0]}")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_file_does_it(file):
    assert offences(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from cloudpickle import loads",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "yaml.load(text, Loader)",
        "def f(x):\n    return eval(x)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_check_sees_it(code):
    assert offences(code)


def test_what_is_allowed_is_not_seen():
    assert offences("torch.load(f, weights_only=True)\nmodel.eval()\nre.compile('x')\nnp.load(f)") == []
