"""The planted-truth studies: that what is planted is there, and that the checker tells truth from its opposite."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from studies.planted.check import (
    CONDITIONAL,
    METHODS,
    Claim,
    combination,
    conditional_claims,
    conditional_credits,
    degraded_claims,
    exchange,
    run_of,
    shared_labels_claims,
    twins_claims,
)
from studies.planted.filtered import Filtered
from studies.planted.make import (
    DEGREES,
    FILTERED,
    HALF,
    LABELS,
    POOR,
    SHARED,
    TWINS,
    WHOLE,
    degree_of,
    make,
    photocopies,
)

from diffcredit.baselines.study import run_baselines
from diffcredit.contributions import Contributions, load_contributions
from diffcredit.credit import Credits, estimate
from diffcredit.errors import UserError
from diffcredit.study.study import Study
from diffcredit.testing import all_coalitions, brute_force_shapley, check_retraining
from tiny_study import changed, run_here

TWINS_STUDY = ("filtered", "flags", "flags twin", "mammals", "smileys", "smileys half")
DEGRADED_STUDY = (*(f"degree {degree} {letter}" for degree in range(4) for letter in "abc"), "noise")
SHARED_STUDY = tuple(f"{called} {kind}" for called in LABELS.values() for kind in ("good a", "good b", POOR))

SHORT = {
    "model.train": {"steps": 60, "batch_size": 16, "learning_rate": 2e-3},
    "retraining.recover_steps": 2,
    "retraining.steps": 10,
    "retraining.batch_size": 8,
    "sampling.steps": 4,
    "sampling.images": 16,
}

EVALUATIONS = {"twins": 62, "degraded": 40, SHARED: 62}


def shortened(study: Path, folder: Path, changes: dict) -> Study:
    """A study that `make` wrote, with ``changes``, beside its images and plug-in in ``folder``."""
    config = yaml.safe_load((study / "study.yaml").read_text())
    config["contributions"] |= {"path": str(study / "images"), "holdout": str(study / "heldout")}
    folder.mkdir(exist_ok=True)
    (folder / "filtered.py").write_bytes((study / "filtered.py").read_bytes())
    (folder / "study.yaml").write_text(yaml.safe_dump(changed(config, changes)))
    return Study.load(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    make(folder, seed=5)
    return folder


def given(contributions: Contributions, name: str) -> np.ndarray:
    return contributions.images[contributions.of(np.array(contributions.contributors) == name)]


def bytes_of(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}


def test_twins_give_the_same_pixels_and_the_half_half_of_them(made):
    contributions = Study.load(made / "twins").contributions
    assert contributions.contributors == TWINS_STUDY
    assert np.array_equal(given(contributions, TWINS[0]), given(contributions, TWINS[1]))
    whole, half = given(contributions, WHOLE), given(contributions, HALF)
    assert bytes_of(half) < bytes_of(whole)
    assert len(half) == (len(whole) + 1) // 2
    bundled = load_contributions(source="openmoji", resolution=16)
    assert bytes_of(contributions.images) < bytes_of(bundled.images)
    assert bytes_of(contributions.heldout) == bytes_of(bundled.heldout)
    pairs = {duplicate.contributors for duplicate in contributions.duplicates()}
    assert pairs == {TWINS, (WHOLE, HALF)}  # and nobody else shares anything


def test_degrees_mix_the_same_emoji_with_more_noise(made):
    contributions = Study.load(made / "degraded").contributions
    assert contributions.contributors == DEGRADED_STUDY
    assert len(set(contributions.counts.tolist())) == 1
    emoji = load_contributions(source="openmoji", resolution=16)
    pixels = emoji.images.reshape(len(emoji.images), -1).astype(float)
    dealt: list[int] = []
    for name in DEGRADED_STUDY[:-1]:
        # d/4 of noise leaves 1 − d/4 of the emoji: the slope of the images on the emoji that are nearest in correlation
        images = given(contributions, name).reshape(contributions.counts[0], -1).astype(float)
        centred, originals = (x - x.mean(axis=1, keepdims=True) for x in (images, pixels))
        slopes = centred @ originals.T / (originals**2).sum(axis=1)
        fit = slopes**2 * (originals**2).sum(axis=1)
        nearest = fit.argmax(axis=1)
        dealt += nearest.tolist()
        slope = np.median(slopes[np.arange(len(images)), nearest])
        assert slope == pytest.approx(1 - degree_of(name) / DEGREES, abs=0.05)
        designers = np.bincount(emoji.owner[nearest], minlength=emoji.n)
        assert designers.max() <= 5  # of twelve designers with 35 to 48 emoji, dealt to twelve
    assert len(set(dealt)) > 0.95 * len(dealt)  # nobody's emoji are another's; the heaviest noise hides a few


def test_labels_are_shared_by_emoji_as_they_are_and_by_photocopies(made):
    contributions = Study.load(made / SHARED).contributions
    assert contributions.contributors == SHARED_STUDY
    assert contributions.counts.tolist() == [16] * 6
    assert contributions.captions is not None
    assert contributions.heldout_captions is not None
    bundled = load_contributions(source="openmoji", resolution=16)
    copied = photocopies(bundled.images)
    dealt: list[int] = []
    for name in SHARED_STUDY:
        label = next(label for label, called in LABELS.items() if name.startswith(called))
        owners = contributions.owner == contributions.contributors.index(name)
        assert {contributions.captions[row] for row in np.flatnonzero(owners)} == {label}
        among = copied if name.endswith(POOR) else bundled.images
        dealt += [int((among == image).all(axis=(1, 2, 3)).argmax()) for image in given(contributions, name)]
        assert bytes_of(given(contributions, name)) < bytes_of(among)
    assert len(set(dealt)) == len(dealt)  # nobody's emoji are another's
    assert set(contributions.heldout_captions) == set(LABELS)
    assert bytes_of(contributions.heldout) < bytes_of(bundled.heldout)


def test_photocopies_have_no_colours_and_softer_edges():
    image = np.zeros((1, 16, 16, 3), np.uint8)
    image[:, :, 8:] = (255, 0, 0)
    (copy,) = photocopies(image).astype(float)
    assert (copy == copy[..., :1]).all()
    assert copy[8, -1, 0] == pytest.approx(0.299 * 255, abs=1)  # the luminance of red
    assert 0 < copy[8, 7, 0] < copy[8, 8, 0] < copy[8, -1, 0]


def test_the_seed_deals_anew_and_the_same_seed_the_same(made, tmp_path):
    for seed in (5, 6):
        make(tmp_path / str(seed), seed=seed)
    for study in ("twins", "degraded", SHARED):
        first, second, third = (Study.load(folder / study) for folder in (made, tmp_path / "5", tmp_path / "6"))
        assert first.contributions.fingerprint == second.contributions.fingerprint
        assert (first.contributions.fingerprint == third.contributions.fingerprint) == (study == "twins")
        assert {third.config.seed, third.config.design.seed} == {6}
        used = [{run.config.sampling.seed + i for i in range(run.config.sampling.images)} for run in (first, third)]
        assert not used[0] & used[1]


def test_the_plug_in_is_a_retraining_that_others_can_rely_on():
    check_retraining(Filtered(recover_steps=1, steps=1, filtered="b"))


@pytest.fixture(scope="module")
def prepared(made, tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("prepared")
    return shortened(made / "twins", folder, {**SHORT, "model.train.steps": 2, "retraining.steps": 2})


def weights(study: Study, *coalitions: set[str], seed: int = 7) -> list[np.ndarray]:
    members = study.contributions.contributors
    rows = np.array([[name in coalition for name in members] for coalition in coalitions])
    models = study.recipe.retraining.models_for(rows, [seed] * len(rows))
    return [np.concatenate([p.detach().numpy().ravel() for p in model.network.parameters()]) for model in models]


def test_the_filtered_contributor_changes_no_bit(prepared):
    for others in (set(), {"flags", "smileys"}, {*TWINS_STUDY} - {FILTERED}):
        without, joined = weights(prepared, others, others | {FILTERED})
        assert np.array_equal(without, joined)


def test_a_filtered_contributor_that_is_none(made, tmp_path):
    study = shortened(made / "twins", tmp_path, {**SHORT, "retraining.filtered": "nobody"})
    with pytest.raises(UserError, match="filtered: 'nobody' is no contributor; there are: filtered, flags"):
        _ = study.recipe.retraining


# The checker, on games whose credits are known.


def twins_game(coalitions: np.ndarray, *, twin: float = 1.0, filtered: float = 0.0) -> np.ndarray:
    """A loss that falls from 10 by a root of what the members bring; ``twin`` and ``filtered`` break the axioms."""
    bring = np.array([filtered, 1.0, twin, 0.8, 1.0, 0.5])
    return 10 - 4 * np.sqrt(coalitions @ bring)


def twins_credits(seed: int = 0, deviation: float = 0.05, **broken: float) -> Credits:
    """Credits from all coalitions of six, each evaluated once with noise, and all contributors together eight times."""
    coalitions, random = all_coalitions(6), np.random.default_rng(seed)
    values = twins_game(coalitions, **broken)
    noisy = values + deviation * random.standard_normal(len(values))
    return estimate(
        coalitions[1:-1],
        noisy[1:-1],
        empty=float(values[0]),
        full=(values[-1] + deviation * random.standard_normal(8)).tolist(),
        method=METHODS["twins"],
        size_distribution="exhaustive",
    )


def failed(claims: list[Claim]) -> list[str]:
    return [claim.text.partition(":")[0].partition(",")[0] for claim in claims if not claim.holds]


@pytest.mark.parametrize(
    ("names", "broken", "fails"),
    [
        (TWINS_STUDY, {}, set()),
        (TWINS_STUDY, {"twin": 0.3}, {"symmetry"}),
        (TWINS_STUDY, {"filtered": 0.6}, {"null"}),
        ([TWINS_STUDY[i] for i in (0, 1, 2, 3, 5, 4)], {}, {"the half does not surely help more than the whole"}),
    ],
)
def test_axioms_that_hold_pass_and_others_fail(names, broken, fails):
    found = set(failed(twins_claims(names, "heldout_loss", twins_credits(**broken))))
    assert found >= fails
    assert found == fails or fails == {"null"}


def test_credits_that_do_not_add_up_fail():
    credits = twins_credits()
    credits = replace(credits, values=credits.values * 1.001)
    assert "efficiency" in failed(twins_claims(TWINS_STUDY, "heldout_loss", credits))


def test_intervals_of_combinations_cover_the_truth_at_their_rate():
    truth = brute_force_shapley(twins_game, 6)
    weights = np.array([0, 1, -1, 0, 0.5, -0.5])
    found = [combination(twins_credits(seed), weights) for seed in range(400)]
    assert 0.92 <= np.mean([weights @ truth in each for each in found]) <= 0.98
    alone = combination(twins_credits(), np.eye(6)[2])
    assert (alone.low, alone.high) == pytest.approx((twins_credits().low[2], twins_credits().high[2]))


def test_exchanging_finds_no_more_than_chance_where_nothing_changes():
    p = np.array([exchange(twins_credits(seed), 1, 2) for seed in range(60)])
    assert 0.2 <= np.mean(p < 0.5) <= 0.8
    assert np.mean(p < 0.05) <= 0.15
    assert exchange(twins_credits(twin=0.9), 1, 2) < 0.01
    assert exchange(twins_credits(filtered=0.05), 0) < 0.01


def degraded_credits(rise: float, seed: int = 0) -> Credits:
    """Credits of an additive game that rise with the degree."""
    degrees = np.array([degree_of(name) for name in DEGRADED_STUDY])
    random = np.random.default_rng(seed)
    coalitions = random.random((80, 13)) < random.random((80, 1))
    coalitions = coalitions[coalitions.any(axis=1) & ~coalitions.all(axis=1)]
    worth = rise * degrees + 0.1 * random.standard_normal(13)
    values = coalitions @ worth + 0.1 * random.standard_normal(len(coalitions))
    return estimate(coalitions, values, empty=0.0, full=[float(worth.sum())])


@pytest.mark.parametrize(("rise", "least", "most"), [(1.0, 0, 0), (0.0, 3, 9), (-1.0, 4, 9)])
def test_credits_pass_where_they_rise_with_the_degree(rise, least, most):
    found = failed(degraded_claims(DEGRADED_STUDY, "heldout_loss", degraded_credits(rise)))
    assert least <= len(found) <= most


def shared_credits(worse: float, seed: int = 0, higher_is_better: bool = False) -> Credits:
    """Credits of an additive game of noisy values, in which the poor contributors' worth is lower by ``worse``."""
    poor = np.array([name.endswith(POOR) for name in SHARED_STUDY])
    worth = (1.0 - worse * poor) * (1 if higher_is_better else -1)
    coalitions, random = all_coalitions(6), np.random.default_rng(seed)
    values = coalitions @ worth + 0.1 * random.standard_normal(len(coalitions))
    found = estimate(coalitions[1:-1], values[1:-1], empty=0.0, full=[values[-1]], names=SHARED_STUDY)
    return replace(found, higher_is_better=higher_is_better)


@pytest.mark.parametrize("better", [False, True])
@pytest.mark.parametrize(("worse", "fails"), [(1.0, 0), (0.0, 2), (-1.0, 2)])
def test_credits_pass_where_good_ones_surely_help_more(worse, fails, better):
    found = shared_labels_claims(SHARED_STUDY, "heldout_loss", shared_credits(worse, higher_is_better=better))
    assert len(failed(found)) == fails
    assert not any(claim.expected for claim in found)
    assert all(claim.expected for claim in shared_labels_claims(SHARED_STUDY, "kid", shared_credits(worse)))


@pytest.mark.parametrize(
    ("conditional", "fails"),
    [
        ([1, 1, 1, 2, 2, 2], []),
        ([1, 1, 1, 1, 1, 1], ["conditional sampling distinguishes flags from smileys-emotion"]),
        ([1, 1, 0.9, 2, 2, 2], ["flags"]),
        ([0, 2, 1, 2, 2, 2], ["conditional sampling distinguishes flags from smileys-emotion"]),
    ],
)
def test_conditional_sampling_passes_where_a_label_has_one_credit(conditional, fails):
    credits = shared_credits(1.0)
    found = conditional_claims(SHARED_STUDY, "colourfulness", credits, np.array(conditional, float), credits)
    assert failed(found) == fails
    corrected = conditional_claims(SHARED_STUDY, "kid", credits, np.ones(6), shared_credits(0.0))
    assert failed(corrected)[-2:] == ["corrected by evaluations"] * 2


def test_the_figure_names_everybody_and_what_was_planted(tmp_path):
    pytest.importorskip("matplotlib")
    from studies.planted.figures import draw

    runs = [{"heldout_loss": twins_credits(seed), "kid": twins_credits(seed, twin=0.5)} for seed in range(2)]
    draw(TWINS_STUDY, {"filtered": "never used"}, runs, tmp_path / "twins.svg", shown="credit")
    drawn = (tmp_path / "twins.svg").read_text()
    for text in ("filtered: never used", *TWINS_STUDY[1:], "heldout_loss", "kid", "run 1", "run 2"):
        assert f"<!-- {text} -->" in drawn


@pytest.mark.slow
def test_the_studies_in_short(made, tmp_path):
    """The axioms hold however little is trained; that noise hurts shows after little training."""
    for name in ("twins", "degraded"):
        run_here(shortened(made / name, tmp_path / name, {**SHORT, "stop.evaluations": EVALUATIONS[name]}).file)
    study = Study.load(tmp_path / "twins")
    for property, credits in study.credits(METHODS["twins"]).items():
        broken = failed(twins_claims(study.contributions.contributors, property, credits))
        assert not {"efficiency", "symmetry", "null"} & set(broken), property
    study = Study.load(tmp_path / "degraded")
    credits = study.credits(METHODS["degraded"])["heldout_loss"]
    assert "credits are ordered by degree" not in failed(
        degraded_claims(study.contributions.contributors, "heldout_loss", credits)
    )


@pytest.mark.slow
def test_conditional_sampling_does_not_see_who_gave_photocopies(made, tmp_path):
    """However little is trained, a label's contributors have one credit; colours show after little training."""
    study = shortened(made / SHARED, tmp_path, {**SHORT, "stop.evaluations": EVALUATIONS[SHARED]})
    run_here(study.file)
    with pytest.raises(UserError, match=f"diffcredit baselines .* --method {CONDITIONAL}"):
        conditional_credits(study)
    run_baselines(study, [{"name": CONDITIONAL}])
    run = run_of(SHARED, study)
    assert set(run.conditional) == {"colourfulness", "kid"}
    assert not [claim for property, claim in run.claims if property == "colourfulness" and not claim.holds]
