"""What people do with credits: read, draw, keep, and pass on to other tools."""

import csv
import doctest
import importlib
import io
import json
import sys
from dataclasses import fields, replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import shapiq

from diffcredit.coalitions import make_design
from diffcredit.credit import METHODS, Credits, estimate
from diffcredit.errors import UserError
from diffcredit.testing import games

N = 5
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
    credits = replace(
        credits_by(method, names=["Ada", *"bcd", "Zoë"]), property_name="FID", unit="points", higher_is_better=False
    )
    credits.save(tmp_path / "credits.json")
    assert_same(Credits.load(tmp_path / "credits.json"), credits)


def test_files_of_version_1_load(tmp_path):
    credits, file = credits_by("shapley"), tmp_path / "credits.json"
    credits.save(file)
    document = json.loads(file.read_text()) | {"version": 1}
    del document["credits"]["higher_is_better"]
    file.write_text(json.dumps(document))
    assert_same(Credits.load(file), credits)


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
        ({"version": 3}, "version 3 of the format; this diffcredit reads versions 1 and 2"),
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
    credits = credits_by("exact", names=["Ada", "Bo\x1b[2J", "Cy", "Di", "x" * 60])
    lines = str(credits).splitlines()
    assert lines[0] == "Credits of 5 contributors by exact from 30 evaluations, higher is better"
    assert lines[1].endswith("with 95 % intervals")
    order = np.argsort(-credits.values)
    shown = [line.split()[0] for line in lines[4:]]
    assert shown == [["Ada", r"Bo\x1b[2J", "Cy", "Di", "x" * 39 + "…"][i] for i in order]
    for line, i in zip(lines[4:], order, strict=True):
        numbers = [float(cell) for cell in line.split()[1:]]
        beside = credits.values[i] - credits.values.mean() + credits.contrast_half_width[i] * np.array([0, -1, 1])
        np.testing.assert_allclose(numbers, [*beside, credits.values[i]], atol=0.06)
    assert len({len(line) for line in lines[3:]}) == 1
    turned = str(replace(credits, higher_is_better=False)).splitlines()
    assert "lower is better" in turned[0]
    assert [line.split()[0] for line in turned[4:]] == shown[::-1]
    named = replace(credits, property_name="FID", unit="points")
    assert "5 contributors for FID in points by exact" in repr(named)


def test_a_long_table_is_cut_in_the_middle():
    credits = credits_by("shapley", n=30)
    lines = repr(credits).splitlines()
    assert len(lines) == 3 + 1 + 21
    assert lines[14] == "… 10 more"
    assert [int(line.split()[0]) for line in lines[4:14]] == np.argsort(-credits.values)[:10].tolist()
    assert int(lines[-1].split()[0]) == np.argmin(credits.values)


def test_unknown_intervals_are_printed_as_such():
    lines = repr(credits_by("leave-one-out", full=[15.0])).splitlines()
    assert all(line.split()[2:4] == ["-inf", "inf"] for line in lines[4:])


@pytest.mark.parametrize(("method", "n"), [("shapley", 50), ("leave-one-out", N)])
def test_a_figure_shows_credits_and_intervals(tmp_path, method, n):
    mpl.use("Agg")
    credits = replace(credits_by(method, n=n, names=[f"$x_{{{i}$" for i in range(n)]), unit="points")
    ax = credits.plot()
    points = ax.lines[0].get_xdata()
    drawn = np.sort(credits.values - credits.values.mean())[::-1]
    np.testing.assert_array_equal(points, drawn if n <= 40 else np.r_[drawn[:20], drawn[-20:]])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == credits.names[int(np.argmax(credits.values))]
    assert ("… 10 more" in labels) == (n == 50)
    finite = np.isfinite(credits.high).all()
    interval = "95 % interval" if finite else "interval not known"
    assert ax.get_xlabel() == f"help beside the average, more is better (points, {interval})"
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    best = int(np.argmax(credits.values))
    half = credits.contrast_half_width[best] if finite else 0.0
    np.testing.assert_allclose(ends[0], [drawn[0] - half, drawn[0] + half])
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


NAMES = ["Ada", "=HYPERLINK(1)", "-1", 'naïve, "quoted"', "O'Neil"]


def exact(game, coalitions=ALL, **options):
    ends = {"empty": float(game(np.zeros((1, N), bool))[0]), "full": float(game(np.ones((1, N), bool))[0])}
    options = {"method": "exact", "size_distribution": "exhaustive"} | ends | options
    return estimate(coalitions, game(coalitions), **options)


def noisy(full=10.0, names=NAMES):
    game = games.noisy(games.additive([1.0, 4.0, 0.0, 3.0, 2.0]), 0.1)
    return exact(game, method="unshrunk", empty=0.0, full=full, names=names)


def test_a_frame_has_one_row_a_contributor():
    credits = noisy()
    frame = credits.to_frame()
    assert isinstance(frame, pd.DataFrame)
    columns = "contributor credit low high standard_error rank rank_low rank_high share share_low share_high"
    columns += " help help_low help_high"
    assert list(frame.columns) == columns.split()
    assert frame["contributor"].tolist() == NAMES
    assert frame["rank"].tolist() == frame["rank_low"].tolist() == frame["rank_high"].tolist() == [4, 1, 5, 2, 3]
    np.testing.assert_array_equal(frame["credit"], credits.values)
    np.testing.assert_array_equal(frame[["low", "high"]].T, [credits.low, credits.high])
    np.testing.assert_allclose(frame["share_low"], credits.low / 10)
    np.testing.assert_allclose(frame["share"].sum(), 1)
    assert credits.to_frame(higher_is_better=False)["rank_low"].tolist() == [2, 5, 1, 4, 3]
    assert noisy(names=None).to_frame()["contributor"].tolist() == ["0", "1", "2", "3", "4"]


def test_csv_says_what_the_frame_says(tmp_path):
    credits = noisy()
    text = credits.to_csv()
    assert credits.to_csv(tmp_path / "credits.csv") is None
    assert (tmp_path / "credits.csv").read_bytes().decode() == text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row.pop("contributor") for row in rows] == ["Ada", "'=HYPERLINK(1)", "'-1", 'naïve, "quoted"', "O'Neil"]
    frame = credits.to_frame().drop(columns="contributor")
    assert [[float(cell) for cell in row.values()] for row in rows] == frame.to_numpy().tolist()
    assert list(rows[0]) == list(frame.columns)


def test_numbers_that_are_not_finite_leave_csv_cells_empty():
    rows = list(csv.DictReader(io.StringIO(noisy(full=[-3.0, 3.1]).to_csv(), newline="")))
    assert {row["share_low"] for row in rows} == {row["share_high"] for row in rows} == {""}
    assert all(float(row["credit"]) for row in rows)


def test_shapiq_computes_our_exact_credits_from_the_game():
    game = games.random_game(N, seed=2)
    rows = np.concatenate([ALL, ALL[:7]])
    credits = exact(game, rows)
    theirs = credits.to_shapiq()
    assert isinstance(theirs, shapiq.Game)
    np.testing.assert_allclose(shapiq.ExactComputer(theirs)("SV").get_n_order_values(1), credits.values, atol=1e-12)
    np.testing.assert_array_equal(theirs(games.all_coalitions(N)), game(games.all_coalitions(N)))


def test_the_game_averages_replicates_and_refuses_what_was_not_evaluated():
    rows = np.concatenate([ALL[:20], ALL[:1], np.ones((1, N), bool)])
    values = np.append(np.arange(20.0), [4.0, 5.0])
    sizes = np.bincount(ALL[:20].sum(axis=1), minlength=N)[1:N] / 20
    game = estimate(rows, values, empty=[1.0, 2.0], full=[6.0], size_distribution=sizes).to_shapiq()
    assert game(ALL[:3]).tolist() == [2.0, 1.0, 2.0]
    assert game(game.empty_coalition).tolist() == [1.5]
    assert game(game.grand_coalition).tolist() == [5.5]
    missing = "".join("01"[int(member)] for member in ALL[25])
    with pytest.raises(UserError, match=f"coalition {missing} was not evaluated; this game knows 22 of the 2\\^5"):
        game(ALL[24:27][[1]])


def test_interaction_values_equal_shapiqs():
    game = games.random_game(N, seed=4)
    credits = exact(game)
    ours, theirs = credits.to_interaction_values(), shapiq.ExactComputer(game, N)("SV")
    assert (ours.index, ours.max_order, ours.min_order, ours.n_players) == ("SV", 1, theirs.min_order, N)
    assert ours.baseline_value == ours[()] == pytest.approx(theirs.baseline_value)
    np.testing.assert_allclose(ours.get_n_order_values(1), theirs.get_n_order_values(1), atol=1e-12)
    assert not ours.estimated
    assert ours.estimation_budget == 2**N - 2
    assert noisy().to_interaction_values().estimated


def test_only_shapley_values_are_called_so():
    credits = noisy()
    with pytest.raises(UserError, match="by 'unshrunk' do not sum"):
        replace(credits, values=credits.values + 1).to_interaction_values()


@pytest.mark.parametrize(
    ("package", "method"),
    [("pandas", "to_frame"), ("shapiq", "to_shapiq"), ("shapiq", "to_interaction_values"), ("matplotlib", "plot")],
)
def test_a_missing_package_is_named(monkeypatch, package, method):
    for module in (package, f"{package}.pyplot"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"{package} is needed .* pip install {package}"):
        getattr(noisy(), method)()
