import csv
import io
import sys
from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
import shapiq

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing import games

N = 5
ALL = make_design("exhaustive").draw(N, 0, 2**N - 2)
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


def test_shapiqs_plots_show_them():
    mpl.use("Agg")
    credits = exact(games.learning(N))
    values = credits.to_interaction_values()
    bars = shapiq.bar_plot([values], show=False).patches
    np.testing.assert_allclose(sorted(bar.get_width() for bar in bars), sorted(credits.values))
    mpl.pyplot.close("all")


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
