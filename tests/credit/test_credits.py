"""What people do with credits: read, draw, keep."""

import doctest
import importlib
import json
from dataclasses import fields, replace

import matplotlib as mpl
import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import METHODS, Credits, estimate
from diffcredit.errors import UserError

N = 6
ALL = make_design("exhaustive").draw(N, 0, 2**N - 2)


def credits_by(method, *, n=N, **options):
    rows = ALL if n == N else make_design("uniform").draw(n, 0, 3 * n)
    values = rows @ np.arange(float(n)) + np.random.default_rng(0).normal(size=len(rows))
    options = {
        "empty": [0.0, 0.5],
        "full": [15.0],
        "size_distribution": "exhaustive" if n == N else "uniform",
    } | options
    return estimate(rows, values, method=method, **options)


def assert_same(one, other):
    """Every field equal to the last bit, in tables and parts too."""
    if hasattr(one, "__dataclass_fields__"):
        assert type(one) is type(other)
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert repr(one) == repr(other) or one == other


@pytest.mark.parametrize("method", [method for method in METHODS if method != "datamodel-lasso"])
def test_files_hold_credits_to_the_last_bit(tmp_path, method):
    credits = replace(credits_by(method, names=["Ada", *"bcde", "Zoë"]), property_name="FID", unit="points")
    credits.save(tmp_path / "credits.json")
    assert_same(Credits.load(tmp_path / "credits.json"), credits)


def test_a_mix_keeps_its_parts(tmp_path):
    a, b = credits_by("shapley"), credits_by("shapley", full=[16.0])
    (a - b).save(tmp_path / "mix.json")
    loaded = Credits.load(str(tmp_path / "mix.json"))
    assert_same(loaded, a - b)
    assert_same((2 * loaded).influence, (2 * (a - b)).influence)
    document = json.loads((tmp_path / "mix.json").read_text())
    assert document["parameters"]["method"] == "mix"
    assert document["saved"].endswith("+00:00")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2 of the format; this diffcredit reads version 1"),
        ({"format": "something else"}, "no credits; expected a file that Credits.save wrote"),
        ({"credits": {}}, "damaged"),
    ],
)
def test_other_files_are_refused(tmp_path, change, message):
    file = tmp_path / "credits.json"
    credits_by("exact").save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=f"credits.json: {message}"):
        Credits.load(file)
    file.write_text("[1, 2")
    with pytest.raises(UserError, match="no credits"):
        Credits.load(file)
    with pytest.raises(UserError, match="no such file"):
        Credits.load(tmp_path / "missing.json")


def test_a_printed_table_has_the_largest_first():
    credits = credits_by("exact", names=["Ada", "Bo\x1b[2J", "Cy", "Di", "Eve", "x" * 60])
    lines = str(credits).splitlines()
    assert lines[0] == "Credits of 6 contributors by exact from 62 evaluations, with 95 % intervals"
    order = np.argsort(-credits.values)
    shown = [line.split()[0] for line in lines[3:]]
    assert shown == [["Ada", r"Bo\x1b[2J", "Cy", "Di", "Eve", "x" * 39 + "…"][i] for i in order]
    for line, i in zip(lines[3:], order, strict=True):
        numbers = [float(cell) for cell in line.split()[1:]]
        np.testing.assert_allclose(numbers, [credits.values[i], credits.low[i], credits.high[i]], atol=0.06)
    assert len({len(line) for line in lines[2:]}) == 1
    named = replace(credits, property_name="FID", unit="points")
    assert "6 contributors for FID in points by exact" in repr(named)


def test_a_long_table_is_cut_in_the_middle():
    credits = credits_by("shapley", n=30)
    lines = repr(credits).splitlines()
    assert len(lines) == 2 + 1 + 21
    assert lines[13] == "… 10 more"
    assert [int(line.split()[0]) for line in lines[3:13]] == np.argsort(-credits.values)[:10].tolist()
    assert int(lines[-1].split()[0]) == np.argmin(credits.values)


def test_unknown_intervals_are_printed_as_such():
    lines = repr(credits_by("leave-one-out", full=[15.0])).splitlines()
    assert all(line.split()[2:] == ["-inf", "inf"] for line in lines[3:])


@pytest.mark.parametrize(("method", "n"), [("shapley", 50), ("leave-one-out", N)])
def test_a_figure_shows_credits_and_intervals(tmp_path, method, n):
    mpl.use("Agg")
    credits = replace(credits_by(method, n=n, names=[f"$x_{{{i}$" for i in range(n)]), unit="points")
    ax = credits.plot()
    points = ax.lines[0].get_xdata()
    drawn = np.sort(credits.values)[::-1]
    np.testing.assert_array_equal(points, drawn if n <= 40 else np.r_[drawn[:20], drawn[-20:]])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == credits.names[int(np.argmax(credits.values))]
    assert ("… 10 more" in labels) == (n == 50)
    finite = np.isfinite(credits.high).all()
    assert ax.get_xlabel() == ("credit (points, 95 % interval)" if finite else "credit (points, interval not known)")
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    best = int(np.argmax(credits.values))
    np.testing.assert_allclose(ends[0], [credits.low[best], credits.high[best]] if finite else credits.values[best])
    ax.figure.savefig(tmp_path / "credits.png")
    assert credits.plot(ax) is ax
    mpl.pyplot.close("all")


MODULES = ("credit", "credit.credits", "credit.mixing", "credit.precision", "credit.stopping")
MODULES += ("coalitions", "coalitions.design")


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module):
    found = doctest.testmod(importlib.import_module(f"diffcredit.{module}"))
    assert found.attempted
    assert not found.failed
