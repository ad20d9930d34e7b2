import dataclasses

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from tests.validation.made_up import section_of

from diffcredit.errors import UserError
from diffcredit.validation.parts.lds import ADDITIVE, RANDOM, REPLICATES
from diffcredit.validation.presentation.writing import read_section, write_section
from diffcredit.validation.statistics.datamodeling import compare_lds
from diffcredit.validation.statistics.records import Contender, Estimate, Truth

N = 12
BETA = np.random.default_rng(0).standard_normal(N)


def truth(share=0.5, count=60, seeds=2, noise=0.5, beta=BETA, seed=1):
    generator = np.random.default_rng([seed, int(100 * share)])
    coalitions = np.argsort(np.argsort(generator.random((count, N)), axis=1), axis=1) < int(share * N)
    values = (coalitions @ beta)[:, None] + noise * generator.standard_normal((count, seeds))
    return Truth(share, coalitions, values)


def contender(name, credits, category="shapley"):
    recipe = "sparsified" if category == "shapley" else ""
    return Contender(name, category, recipe, np.asarray(credits, float))


SHUFFLED = np.random.default_rng(2).permutation(N)
CONTENDERS = (
    contender("near", BETA + 0.02 * np.random.default_rng(3).standard_normal(N)),
    contender("random ranking", SHUFFLED, "floor"),
    contender("exact", BETA),
    contender("reversed", -BETA, "similarity"),
    contender("equal", np.ones(N), "floor"),
)
TRUTHS = tuple(truth(share) for share in (0.25, 0.5, 0.75))


@pytest.fixture(scope="module")
def result():
    return compare_lds(TRUTHS, CONTENDERS)


def test_scores_are_scipys(result):
    for each in TRUTHS:
        means = each.values.mean(axis=1)
        for score in result.at(each.share)[:4]:
            said = [sum(score.contender.credits[row]) for row in each.coalitions]
            assert score.spearman.value == pytest.approx(spearmanr(said, means).statistic)
            assert score.pearson.value == pytest.approx(pearsonr(said, means).statistic)
            by_seed = [spearmanr(said, column).statistic for column in each.values.T]
            assert score.seeds == pytest.approx(by_seed)
            assert score.over_seeds.value == pytest.approx(np.mean(by_seed))
            assert score.spearman.low < score.spearman.value < score.spearman.high
            part = score.of_ceiling
            assert part.value == pytest.approx(
                score.spearman.value / result.ceilings_at(each.share).spearman.replicates.value
            )
            assert part.low < part.value < part.high
    assert [score.contender for score in result.at(0.5)] == list(CONTENDERS)
    assert np.isnan(result.at(0.5)[4].spearman.value)


def test_ceilings_are_what_the_planted_game_allows(result):
    for each in result.ceilings:
        exact = next(score for score in result.at(each.share) if score.contender.name == "exact").spearman
        # F is additive: the exact credits are F without noise.
        assert each.spearman.replicates.low < exact.value < each.spearman.replicates.high
        assert each.spearman.additive.value < each.spearman.replicates.value
        assert each.spearman.additive.value > exact.value - 0.15
        assert each.spearman.split.value < each.spearman.replicates.value
        assert (each.coalitions, each.seeds) == (60, 2)


def test_a_verdict_is_told_of_the_first_at_the_middle_share(result):
    found, half = result.tested(), TRUTHS[1]
    said, means = half.coalitions @ CONTENDERS[0].credits, half.values.mean(axis=1)
    assert found.score == pytest.approx(spearmanr(said, means).statistic)
    assert found.low < found.score < found.high
    assert found.ceiling == pytest.approx(spearmanr(half.coalitions @ BETA, means).statistic, abs=0.05)
    assert (found.coalitions, found.seeds) == (60, 2)
    unknown = [truth(seeds=1), truth(beta=np.zeros(N))]  # one seed, and seeds that do not agree
    assert [compare_lds([each], CONTENDERS[:1]).tested().ceiling for each in unknown] == [None, None]


def test_differences_are_against_the_first_or_the_one_named(result):
    assert {each.against for each in result.differences} == {"near"}
    found = {(each.share, each.contender): each for each in result.differences}
    assert len(found) == 3 * 4
    for share in (0.25, 0.5, 0.75):
        scores = {score.contender.name: score.spearman.value for score in result.at(share)}
        for name in ("random ranking", "exact", "reversed"):
            assert found[share, name].spearman.value == pytest.approx(scores[name] - scores["near"])
        assert found[share, "reversed"].verdict == "worse"
        assert found[share, "exact"].verdict == "no clear difference"
        assert found[share, "equal"].verdict == "no score"
    other = {
        each.contender: each.verdict for each in compare_lds(TRUTHS[:1], CONTENDERS, against="reversed").differences
    }
    assert other["exact"] == other["near"] == "better"


def test_a_ceiling_that_is_unknown_or_may_be_zero_divides_nothing():
    found = compare_lds([truth(seeds=1)], CONTENDERS)
    assert found.ceilings[0].spearman.replicates is None
    assert np.isnan(found.scores[0].over_seeds.low)
    assert any("one training seed" in sentence for sentence in section_of("lds", {"F": found}).summary)
    both = compare_lds([truth(beta=np.zeros(N))], CONTENDERS)
    assert both.ceilings[0].spearman.split.low < 0
    assert {score.of_ceiling for score in (*found.scores, *both.scores)} == {None}


@pytest.mark.parametrize(
    ("truths", "contenders", "message"),
    [
        ([truth(count=9)], CONTENDERS, "9 coalitions of share 0.5; an interval needs at least 10"),
        ([truth()], [contender("short", BETA[:-1])], r"short: LDS: credits \(11,\), coalitions \(60, 12\)"),
        ([truth()], [contender("bad", np.full(N, np.nan))], r"bad: LDS: credits\[0\] is not a finite number"),
        ([], CONTENDERS[:1], r"0 shares of truth and contenders \['near'\]"),
        ([truth()], [CONTENDERS[0], CONTENDERS[0]], r"contenders \['near', 'near'\]; expected some, each name once"),
    ],
)
def test_refuses_what_does_not_fit(truths, contenders, message):
    with pytest.raises(UserError, match=message):
        compare_lds(truths, contenders)


def test_section_shows_everybody_best_first_and_the_ceilings(result, tmp_path):
    section = section_of("lds", {"Diversity": result, "Aesthetics": result})
    scores, differences, ceilings, details = section.tables
    assert scores.columns[-3:] == ("LDS, share 0.25", "LDS, share 0.5", "LDS, share 0.75")
    mine = [row for row in scores.rows if row[0] == "Aesthetics"]
    assert [row[1] for row in mine[:3]] == [REPLICATES, ADDITIVE, RANDOM]
    at_half = [row[5].value for row in mine[3:] if row[5] is not None]
    assert at_half == sorted(at_half, reverse=True)
    assert {row[1] for row in mine[3:]} == {each.name for each in CONTENDERS}
    assert (mine[-1][1], mine[-1][5]) == ("equal", None)
    assert len(differences.rows) == 2 * 3 * 4
    assert len(ceilings.rows) == 2 * 3
    assert len(details.rows) == 2 * 3 * 5
    assert len(section.figures) == 2
    for word in ("exact", "random ranking", "reversed", "equal", REPLICATES):
        assert word in section.figures[0].svg
    write_section(section, tmp_path / "lds")
    assert read_section(tmp_path / "lds") == section


def test_summary_says_who_beats_whom(result):
    section = section_of("lds", {"Diversity": result})
    said = " ".join(section.summary)
    near = next(score for score in result.at(0.5) if score.contender.name == "near").spearman
    assert "near orders 60 held-out coalitions of 50 % of the contributors" in said
    assert f"a rank correlation (LDS) of {near.value:.2f}" in said
    assert f"95 % interval {near.low:.2f} to {near.high:.2f}" in said
    beaten = next(each for each in result.differences if (each.share, each.contender) == (0.5, "reversed")).spearman
    assert f"reversed by {-beaten.value:.2f} ({-beaten.high:.2f} to {-beaten.low:.2f})" in said
    assert "does not clearly differ from exact" in said
    assert "No score for equal" in said


def test_summary_names_the_best_baseline_of_each_kind():
    others = (contender("worse", -BETA + 1e-3, "similarity"), contender("wide", BETA + BETA.std(), "similarity"))
    noisy = contender("noisy", BETA + 0.5 * np.random.default_rng(4).standard_normal(N), "similarity")
    found = compare_lds([truth()], [*CONTENDERS, *others, noisy])
    scores = {
        name: spearmanr(truth().coalitions @ credits, truth().values.mean(axis=1)).statistic
        for name, credits in (("wide", BETA + BETA.std()), ("random ranking", SHUFFLED))
    }
    best = (
        f"wide (similarity, {scores['wide']:.2f}) and random ranking (floor, {scores['random ranking']:.2f}).".replace(
            "-", "−"
        )
    )
    sentences = [
        each for each in section_of("lds", {"F": found}).summary if each.startswith("The best baseline of each")
    ]
    assert sentences == [f"The best baseline of each kind, with its LDS: {best}"]
    floors = [contender(f"floor {index}", -BETA) for index in range(9)]
    said = section_of("lds", {"F": compare_lds([truth()], [CONTENDERS[2], *floors])}).summary
    assert not any("baseline" in each for each in said)
    assert "and 6 more." in " ".join(said)  # many are counted, not listed


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_constant_property_is_said_in_words(seeds, result, tmp_path):
    flat = dataclasses.replace(truth(seeds=seeds), values=np.full((60, seeds), 0.3))
    found = compare_lds([flat], CONTENDERS)
    assert all(np.isnan(score.spearman.value) for score in found.scores)
    assert {each.verdict for each in found.differences} == {"no score"}
    section = section_of("lds", {"Diversity": found})
    assert len(section.summary) == 1
    assert "Diversity: models retrained on 50 % of the contributors all have one value" in section.summary[0]
    assert section.figures == ()
    cells = [cell for table in section.tables for row in table.rows for cell in row]
    assert not any(isinstance(cell, Estimate) for cell in cells)
    write_section(section, tmp_path / "lds")
    both = section_of("lds", {"Diversity": found, "G": result})
    assert [figure.title for figure in both.figures] == ["LDS: G"]  # others keep theirs
    assert "In bold: near" in both.figures[0].caption


def test_a_contender_that_predicts_nothing_can_lead():
    section = section_of("lds", {"F": compare_lds([truth()], CONTENDERS, against="equal")})
    assert "equal predicts the same for all" in section.summary[0]


def test_seeds_that_do_not_agree_tell_no_ceiling():
    """Each seed is half of the truth and noise that the other seed takes back: their mean is additive all the same."""
    planted = truth(seeds=1)
    noise = 9 * np.random.default_rng(1).normal(size=planted.values.shape)
    both = dataclasses.replace(planted, values=np.hstack([planted.values + noise, planted.values - noise]))
    found = compare_lds([both], CONTENDERS)
    assert found.ceilings[0].spearman.split.value < 0
    assert found.ceilings[0].spearman.additive.value > 0.5
    section = section_of("lds", {"F": found})
    (ceilings,) = [sentence for sentence in section.summary if sentence.startswith("Its ceilings")]
    assert "without any error would reach is not known, since two training seeds" in ceilings
    assert "reaches 0." in ceilings
    rows = {row[1]: row[4] for row in section.tables[0].rows}
    assert rows[REPLICATES] is None
    assert rows[ADDITIVE].value > 0.5


def test_the_floor_is_what_random_rankings_reach():
    """Against scipy's correlations of other draws."""
    one, random = truth(), np.random.default_rng(9)
    means = one.values.mean(axis=1)
    scores = [spearmanr(one.coalitions @ (1.0 + random.permutation(N)), means).statistic for _ in range(2000)]
    result = compare_lds([one], [contender("ours", BETA)])
    found = result.chance[0.5]
    assert [found.value, found.low, found.high] == pytest.approx(np.quantile(scores, [0.5, 0.025, 0.975]), abs=0.12)
    assert found.high > 0.4  # which one draw may reach
    section = section_of("lds", {"F": result})
    assert next(row for row in section.tables[0].rows if row[1] == RANDOM)[4] == found
    assert not any("so does it" in each for each in section.summary)
    poor = section_of("lds", {"F": compare_lds([one], [contender("ours", SHUFFLED)])}).summary
    assert any("so does it: it is not shown to be better than chance" in each for each in poor)
