import json
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
import pytest

from diffcredit.baselines import BASELINES, BaselineCredits, Evidence, aggregate, baseline_credits
from diffcredit.baselines.base import Category, How
from diffcredit.baselines.floors import ImageCount, RandomRanking
from diffcredit.baselines.training_property import TrainingProperty
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.util.plugins import build

from .made_up import COUNTS, contributions, generated, permuted

PROPERTY = Colourfulness()
WITHOUT_MODEL = {
    "image_count": {},
    "random_ranking": {},
    "training_property": {},
    "pixel_similarity": {},
    "feature_similarity": {"features": "layout"},
    "cluster_distance": {"clusters": 3},
    "application_scores": {},
    "patch_similarity": {},
}


def made(name, options, tmp_path):
    return build(name, options, BASELINES, where="baselines", beside=tmp_path)


@pytest.mark.parametrize("name", BASELINES)
def test_each_tells_what_it_is(name, tmp_path):
    baseline = made(name, {}, tmp_path)
    assert baseline.name == name
    assert baseline.title
    assert baseline.category in get_args(Category)
    assert hasattr(baseline, "scores") != hasattr(baseline, "credits")
    if hasattr(baseline, "scores"):
        assert baseline.aggregations
        assert set(baseline.aggregations) <= set(get_args(How))


def test_importing_them_brings_no_torch():
    modules = sorted({reference.partition(":")[0] for reference in BASELINES.values()})
    program = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_one_finite_number_a_contributor_whatever_the_order_of_the_images(name, tmp_path):
    given, rng = contributions(), np.random.default_rng(1)
    baseline = made(name, WITHOUT_MODEL[name], tmp_path)
    found = baseline_credits(baseline, Evidence(given, generated(), prop=PROPERTY, seed=3))
    mixed = baseline_credits(
        baseline,
        Evidence(permuted(given, rng.permutation(20)), generated()[rng.permutation(6)], prop=PROPERTY, seed=3),
    )
    assert [each.name for each in found] == [each.name for each in mixed]
    for each, other in zip(found, mixed, strict=True):
        assert each.credits.shape == (4,)
        assert each.credits.dtype == np.float64
        assert np.isfinite(each.credits).all()
        assert len(set(each.credits)) == 4
        np.testing.assert_allclose(other.credits, each.credits, rtol=1e-4)


@dataclass
class Numbered:
    """Scores image j with j, and chooses a number."""

    name: ClassVar[str] = "numbered"
    title: ClassVar[str] = "Numbers"
    category: ClassVar[Category] = "floor"
    aggregations: ClassVar[tuple[How, ...]] = ("max", "sum")

    def scores(self, evidence):
        self.chosen = {"lambda": 0.5}
        return np.arange(20.0)


def test_scores_are_aggregated_in_every_way_or_the_one_asked_for():
    evidence = Evidence(contributions(), generated())
    maximum, total = baseline_credits(Numbered(), evidence)
    assert [maximum.name, total.name] == ["numbered (max)", "numbered (sum)"]
    np.testing.assert_array_equal(maximum.credits, [4, 7, 15, 19])
    np.testing.assert_array_equal(total.credits, [10, 18, 92, 70])
    assert maximum.chosen == total.chosen == {"lambda": 0.5}
    (mean,) = baseline_credits(Numbered(), evidence, "mean")
    assert mean.name == "numbered (mean)"
    np.testing.assert_array_equal(mean.credits, aggregate(np.arange(20), evidence.contributions, "mean"))
    (count,) = baseline_credits(ImageCount(), evidence)
    assert (count.name, count.how, count.chosen) == ("image_count", "", {})


def test_a_setting_has_a_name_of_its_own():
    def name(how, **options):
        return BaselineCredits("trak", how, np.zeros(4), options=options).name

    assert name("sum") == "trak (sum)"
    assert name("") == "trak"
    assert name("sum", lam=0.5, dimensions=512) == "trak (sum, dimensions=512, lam=0.5)"
    assert name("", precision="bf16") == "trak (precision=bf16)"
    assert name("max", layers=["up", "mid"], lam=None) == 'trak (max, lam=null, layers=["up","mid"])'


def answering(**answers):
    """A class of a user's own."""
    words = {"name": "own", "title": "Own", "category": "floor", "aggregations": ("sum",)}
    return type("Own", (), {**words, **{key: staticmethod(lambda _, each=each: each) for key, each in answers.items()}})


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (answering(scores=np.zeros(3)), r"own: scores: shape \(3,\); one number for each of 20"),
        (answering(scores=["a"] * 20), "own: scores: not numbers"),
        (answering(credits=np.zeros(5)), r"own: credits: shape \(5,\); one number for each of 4"),
        (answering(credits=[0, 0, np.inf, 0]), "own: credits: that of cy is not a finite number"),
        (type("Bare", (), {"name": "bare", "scores": None}), "Bare: misses title, category, aggregations"),
    ],
)
def test_what_a_user_s_class_answers_is_checked_before_it_is_kept(own, said):
    with pytest.raises(UserError, match=said):
        baseline_credits(own(), Evidence(contributions(), generated()))


def test_what_a_user_s_class_answers_need_not_be_arrays():
    own = answering(credits=[3, 1, 2, 0])
    own.chosen = {"rank": np.float32(2)}
    (found,) = baseline_credits(own(), Evidence(contributions(), generated()))
    assert found.credits.tolist() == [3.0, 1.0, 2.0, 0.0]
    assert json.dumps(found.chosen) == '{"rank": 2.0}'
    own.chosen = {"rank": np.nan}
    with pytest.raises(UserError, match="own: chosen: that of rank is not a finite number"):
        baseline_credits(own(), Evidence(contributions(), generated()))


def test_what_a_user_s_class_raises_is_one_line_that_tells_the_place():
    class Broken(answering(scores=None)):
        def scores(self, evidence):
            return 1 / 0

    with pytest.raises(DiffcreditError, match=r"^own: scores\(evidence\) raised ZeroDivisionError: .*test_registry.py"):
        baseline_credits(Broken(), Evidence(contributions(), generated()))


def test_image_count():
    np.testing.assert_array_equal(ImageCount().credits(Evidence(contributions(), generated())), COUNTS)


def test_random_ranking_is_a_ranking_that_the_seed_chooses():
    given = contributions()
    rankings = [tuple(RandomRanking().credits(Evidence(given, generated(), seed=seed))) for seed in range(300)]
    assert {tuple(sorted(ranking)) for ranking in rankings} == {(1, 2, 3, 4)}
    assert len(set(rankings)) == 24
    assert rankings[0] == tuple(RandomRanking().credits(Evidence(given, generated(seed=9), seed=0)))


def test_training_property_is_that_of_the_own_images():
    given = contributions()
    grey = given.images.mean(axis=-1, keepdims=True).astype(np.uint8)
    given.images[given.owner == 2] = grey[given.owner == 2]
    credits = TrainingProperty().credits(Evidence(given, generated(), prop=PROPERTY))
    assert credits[2] == 0  # grey images have no colour
    for i in (0, 1, 3):
        assert credits[i] == PROPERTY.measure(given.images[given.owner == i]) > 0


def test_refusals_say_what_is_accepted(tmp_path):
    with pytest.raises(UserError, match=r"'pixels' is unknown; accepted: image_count, random_ranking"):
        made("pixels", {}, tmp_path)
    with pytest.raises(UserError, match="needs the property"):
        baseline_credits(TrainingProperty(), Evidence(contributions(), generated()))
    with pytest.raises(UserError, match="image_count: scores no images, so that 'mean' of them cannot be taken"):
        baseline_credits(ImageCount(), Evidence(contributions(), generated()), "mean")
    for options, key in (({"coarse_patch": 7}, "coarse_patch"), ({"fine_weight": 1.5}, "fine_weight")):
        with pytest.raises(UserError, match=rf"baselines\.{key}: "):
            made("patch_similarity", options, tmp_path)
