"""What is compiled once is found again; on the CPU, whose compiler is another but whose cache is the same."""

import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from diffcredit.diffusion.fast import compiling
from diffcredit.diffusion.fast.compiling import Compiled, precompile_kernels, traced

TABLE = torch.linspace(0, 1, 7)
X, T = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 6, 2, 2])


def looked_up(x, t, more):
    y = torch.tanh(x) * TABLE[t][:, None]
    return y if more is None else y + more, y.sum(0)


def never(*given):
    raise AssertionError("traced again")


@pytest.fixture(autouse=True)
def _plainly():
    """The compiler looks for no vector instructions and prepares no headers, which takes longer than all else."""
    from torch._inductor import config

    with config.patch({"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}):
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return tmp_path / "diffcredit" / "functions"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_function_is_compiled_once(folder, monkeypatch):
    from torch._inductor import config, graph

    by_rule, compile_graph = [], graph.GraphLowering.codegen

    def codegen(self):
        by_rule.append(config.deterministic)
        return compile_graph(self)

    monkeypatch.setattr(graph.GraphLowering, "codegen", codegen)

    def assert_equal(function):
        for found, expected in zip(Compiled(function, "it")(X, T, None), looked_up(X, T, None), strict=True):
            torch.testing.assert_close(found, expected)

    assert_equal(looked_up)
    assert_equal(never)  # from the folder
    assert by_rule == [True], "the compiler chooses the order of sums by rule"
    assert not config.deterministic, "of whoever compiles something else"
    (kept,) = (each for each in folder.iterdir() if each.is_dir())

    def assert_compiled_anew(name, *given):
        with pytest.raises(AssertionError, match="traced again"):
            Compiled(never, name)(*given)

    assert_compiled_anew("it", torch.randn(5, 3), torch.tensor([1] * 5), None)  # looks otherwise
    assert_compiled_anew("it", X, T, X)
    assert_compiled_anew("another", X, T, None)
    assert_equal(never)  # still there
    (kept / "compiled").write_bytes(b"damaged")
    assert_compiled_anew("it", X, T, None)


@pytest.fixture
def uncompiled(monkeypatch):
    """Functions as they are, in the place of compiled ones."""

    def compiled(function, given):
        return Mock(side_effect=function, save=lambda path: Path(path).touch()), []

    monkeypatch.setattr(compiling, "_compile", compiled)
    monkeypatch.setattr(compiling, "_read", lambda folder, device: lambda x, t: looked_up(x, t, None))


def test_what_was_not_asked_for_in_months_is_forgotten(folder, uncompiled):
    long_ago = time.time() - 61 * 24 * 3600
    places = []
    for name in ("unused", "asked for"):
        Compiled(looked_up, name)(X, T, None)
        places += [each for each in folder.iterdir() if each.is_dir() and each not in places]
    for each in places:
        os.utime(each, (long_ago, long_ago))
    Compiled(never, "asked for")(X, T, None)
    Compiled(looked_up, "new")(X, T, None)
    unused, asked_for = places
    assert not unused.exists()
    assert not unused.with_name(f"{unused.name}.lock").exists()
    assert asked_for.exists()
    assert len([each for each in folder.iterdir() if each.is_dir()]) == 2


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(tmp_path, monkeypatch, uncompiled):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder
    torch.testing.assert_close(list(Compiled(looked_up, "it")(X, T, None)), list(looked_up(X, T, None)))


def test_other_code_or_settings_are_another_function(monkeypatch):
    here = torch.device("cpu")
    before = compiling._environment(here)
    assert compiling._environment(here) == before
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not torch.backends.cudnn.allow_tf32)
    assert compiling._environment(here) != before


def test_constants_become_arguments():
    graph, constants = traced(lambda x, t: looked_up(x, t, None), [X, T])
    assert [constant.tolist() for constant in constants] == [TABLE.tolist()]
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"]
    torch.testing.assert_close(list(graph(X, T, 2 * TABLE)), [2 * each for each in looked_up(X, T, None)])


def test_operations_are_called_once_for_what_they_are_given(monkeypatch):
    seen = []

    @torch.library.custom_op("diffcredit::doubled_for_a_test", mutates_args=())
    def doubled(x: torch.Tensor, by: int) -> torch.Tensor:
        seen.append((x.shape, x.stride(), x.device.type, by))
        return by * x

    doubled.register_fake(lambda x, by: torch.empty_like(x))

    def function(x, y):
        return doubled(doubled(x, 2), 3), doubled(doubled(y, 3), 3), doubled(y.t(), 3)

    graph, _ = traced(function, [torch.ones(2, 3), torch.ones(2, 3)])
    assert not seen  # a trace computes nothing
    precompile_kernels(graph.graph)
    assert sorted(seen) == [((2, 3), (3, 1), "cpu", 2), ((2, 3), (3, 1), "cpu", 3), ((3, 2), (1, 3), "cpu", 3)]
