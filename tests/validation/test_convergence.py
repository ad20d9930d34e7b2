from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression
from tests.validation.made_up import recipe_game, section_of, truth_of, uniform

from diffcredit.credit import estimate
from diffcredit.errors import UserError
from diffcredit.testing.games import learning, noisy
from diffcredit.validation.statistics import linear_datamodeling_score
from diffcredit.validation.statistics.convergence import convergence_curves, first_reaching, prefix_counts

N = 10


def noisy_game(m=120, deviation=0.05, seed=0, **about):
    return recipe_game(noisy(learning(N, 2), deviation, seed), uniform(N, m), **about)


def credits(game, method, rows):
    return estimate(game.coalitions[rows], game.values[rows], empty=game.empty, full=game.full, method=method).values


def test_counts_grow_evenly_from_half_the_contributors_to_all_evaluations():
    counts = prefix_counts(20, 500)
    assert (counts[0], counts[-1], len(counts)) == (10, 500, 10)
    assert np.diff(np.log(counts)) == pytest.approx(np.log(50) / 9, abs=0.06)
    assert prefix_counts(20, 12) == (10, 11, 12)
    assert prefix_counts(20, 4) == (4,)


def test_scores_are_those_of_the_first_evaluations():
    game, retrained = noisy_game(), noisy_game(seed=1, recipe="from_scratch", method="from_scratch")
    truths = [truth_of(noisy(learning(N, 2), 0.02, 3), N, 40, share, seeds=2) for share in (0.3, 0.5)]
    result = convergence_curves([game], truths, retrained, ["unshrunk"])
    final, reference = credits(game, "unshrunk", slice(None)), credits(retrained, "unshrunk", slice(None))
    assert [each.evaluations for each in result.scores] == [m for m in prefix_counts(N, 120) if m >= 14]
    for each in result.scores:
        own = credits(game, "unshrunk", slice(each.evaluations))
        for truth in truths:
            lds = each.lds[truth.share]
            assert lds.value == pytest.approx(
                linear_datamodeling_score(own, truth.coalitions, truth.values.mean(axis=1))
            )
            assert lds.low < lds.value < lds.high
        assert each.with_final == pytest.approx(stats.pearsonr(own, final).statistic)
        assert each.with_retrained == pytest.approx(stats.pearsonr(own, reference).statistic)


def test_the_range_is_over_disjoint_stretches():
    game, truth = noisy_game(), truth_of(learning(N, 2), N)
    for each in convergence_curves([game], [truth], estimators=["kernelshap"]).scores:
        m = each.evaluations
        scores = [
            linear_datamodeling_score(
                credits(game, "kernelshap", slice(k * m, (k + 1) * m)), truth.coalitions, truth.values[:, 0]
            )
            for k in range(min(120 // m, 5))
        ]
        found = each.stretches[0.5]
        assert found.value == pytest.approx(np.mean(scores))
        if len(scores) > 1:
            assert (found.low, found.high) == pytest.approx((min(scores), max(scores)))
        else:
            assert np.isnan([found.low, found.high]).all()


def test_an_estimator_that_refuses_a_prefix_is_left_out_there():
    """kernelshap needs n − 1 = 9 different coalitions."""
    game = noisy_game(40)
    result = convergence_curves([game], [truth_of(learning(N, 2), N)], None, ["shapley", "kernelshap", "permutation"])
    assert min(each.evaluations for each in result.curves["sparsified", "kernelshap"]) >= 9
    assert min(each.evaluations for each in result.curves["sparsified", "shapley"]) < 9
    assert ("sparsified", "permutation") not in result.curves
    told = {each.what: each for each in result.left_out}
    assert told["sparsified, kernelshap"].evaluations == tuple(m for m in prefix_counts(N, 40) if m < 9)
    assert "kernelshap needs 9 different coalitions, 1 more" in told["sparsified, kernelshap"].reason
    assert told["sparsified, permutation"].evaluations == ()
    rows = section_of("convergence", {"IS": result}).tables[1].rows
    assert ("IS", "sparsified, kernelshap", "5, 6, 8", told["sparsified, kernelshap"].reason) in rows


def test_what_is_missing_is_said():
    game = noisy_game(40)
    enough = truth_of(learning(N, 2), N, 10)
    result = convergence_curves([game], [enough], replace(game, empty=(), recipe="from_scratch"), ["shapley"])
    reference, *_ = result.left_out
    assert reference.what == "correlation with from_scratch, shapley"
    assert reference.reason.startswith("empty: no value")
    assert np.isnan([each.with_retrained for each in result.scores]).all()
    nothing = replace(game, coalitions=game.coalitions[:0], values=game.values[:0], recipe="none")
    none = convergence_curves([nothing], [enough])
    estimators = ("shapley", "kernelshap", "unshrunk", "banzhaf")
    assert {each.what for each in none.left_out} == {f"none, {estimator}" for estimator in estimators}
    assert "no estimator accepts" in section_of("convergence", {"IS": none}).summary[0]
    with pytest.raises(UserError, match="no recipe has evaluations"):
        convergence_curves([], [enough])


def test_without_truth_the_credits_still_settle():
    result = convergence_curves([noisy_game(60)], [], None, ["unshrunk"])
    assert result.middle is None
    assert result.scores[-1].with_final == pytest.approx(1)
    section = section_of("convergence", {"IS": result})
    assert "no truth coalitions" in section.summary[0]
    assert [figure.name for figure in section.figures] == ["correlation-with-final"]


def test_the_summary_says_from_when_on_the_lds_stays():
    result = convergence_curves([noisy_game(300, 0.1)], [truth_of(learning(N, 2), N)], None, ["kernelshap"])
    lds = {each.evaluations: each.lds[0.5].value for each in result.scores}
    settled = min(m for m in lds if all(abs(lds[k] - lds[300]) <= 0.05 for k in lds if k >= m))
    assert settled not in (min(lds), 300)
    sentence = section_of("convergence", {"IS": result}).summary[0]
    assert f"an LDS of {lds[300]:.2f} (" in sentence
    assert sentence.endswith(f"within 0.05 of that from {settled} evaluations on.")


def test_the_section_has_a_row_for_every_score():
    games = [noisy_game(60), noisy_game(40, seed=2, recipe="from_scratch", method="from_scratch")]
    truths = [truth_of(learning(N, 2), N, 20, share) for share in (0.3, 0.5)]
    results = {
        "IS": convergence_curves(games, truths, games[1], ["kernelshap", "unshrunk"]),
        "entropy": convergence_curves(games, truths[:1], None, ["kernelshap"]),
    }
    section = section_of("convergence", results)
    assert all(len(row) == len(table.columns) for table in section.tables for row in table.rows)
    table = section.tables[0]
    assert len(table.rows) == sum(len(result.scores) for result in results.values())
    place = table.columns.index("LDS at 0.5")
    assert table.rows[0][place] == results["IS"].scores[0].lds[0.5]
    assert table.rows[-1][place] is None
    assert [figure.name for figure in section.figures] == [
        "lds-by-evaluations",
        "correlation-with-retrained",
        "correlation-with-final",
    ]


# Where a rising curve of noisy points reaches a level.
def test_between_two_points_it_is_on_the_line():
    assert first_reaching([100, 200, 400], [0.2, 0.6, 0.8], 0.7) == pytest.approx(300)
    assert first_reaching([400, 100, 200], [0.8, 0.2, 0.6], 0.7) == pytest.approx(300)  # in any order


def test_the_ends():
    assert first_reaching([100, 200], [0.5, 0.6], 0.4) == 100
    assert first_reaching([100, 200], [0.5, 0.6], 0.6) == pytest.approx(200)
    assert first_reaching([100, 200], [0.5, 0.6], 0.61) is None
    assert first_reaching([100, 200], [np.nan, np.nan], 0.1) is None
    assert first_reaching([], [], 0.1) is None


def test_a_lucky_point_is_pooled_with_those_after_it():
    """0.9 and then 0.5 are both 0.7 of a curve that does not fall."""
    assert first_reaching([1, 2, 3, 4], [0.1, 0.9, 0.5, 0.8], 0.75) == pytest.approx(3.5)


def test_points_of_one_x_are_averaged():
    assert first_reaching([1, 2, 2], [0.0, 0.4, 0.8], 0.6) == pytest.approx(2)
    assert first_reaching([1, 2, 2], [0.0, 0.4, 0.8], 0.61) is None
    # 0.9 once and 0.1 three times make 0.3 of a curve that does not fall
    assert first_reaching([1, 2, 2, 2], [0.9, 0.1, 0.1, 0.1], 0.31) is None


def test_against_another_library():
    generator = np.random.default_rng(0)
    for _ in range(20):
        x = np.sort(generator.random(12))
        y = x + 0.3 * generator.normal(size=12)
        fit = IsotonicRegression().fit(x, y)
        wanted = generator.uniform(fit.predict(x)[0], fit.predict(x)[-1])
        found = first_reaching(x.tolist(), y.tolist(), wanted)
        assert fit.predict([found])[0] == pytest.approx(wanted)
        assert fit.predict([found - 1e-4])[0] < wanted
