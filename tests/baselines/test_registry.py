import json
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from diffcredit.baselines import BASELINES, BaselineCredits, Evidence, aggregate, baseline_credits
from diffcredit.baselines.base import Category, How
from diffcredit.baselines.controls import ImageCount, TrainingProperty
from diffcredit.diffusion.settings import Sampling
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.util.plugins import build

from .made_up import contributions, generated, permuted

WITHOUT_MODEL = {
    "image_count": {},
    "random_ranking": {},
    "training_property": {},
    "pixel_similarity": {},
    "feature_similarity": {"features": "layout"},
    "cluster_distance": {"clusters": 3},
    "application_scores": {},
    "patch_similarity": {"patch": 3, "coarse_patch": 4},
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


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_one_finite_number_a_contributor_whatever_the_order_of_the_images(name, tmp_path):
    given, rng, prop = contributions(), np.random.default_rng(1), Colourfulness()
    baseline = made(name, WITHOUT_MODEL[name], tmp_path)
    shuffled = Evidence(permuted(given, rng.permutation(20)), generated()[rng.permutation(6)], prop=prop, seed=3)
    found = baseline_credits(baseline, Evidence(given, generated(), prop=prop, seed=3))
    mixed = baseline_credits(baseline, shuffled)
    assert [each.name for each in found] == [each.name for each in mixed]
    for each, other in zip(found, mixed, strict=True):
        assert each.credits.shape == (4,)
        assert each.credits.dtype == np.float64
        assert np.isfinite(each.credits).all()
        assert len(set(each.credits)) == 4
        np.testing.assert_allclose(other.credits, each.credits, rtol=1e-4)


def answering(**answers):
    """A class of a user's own."""
    words = {"name": "own", "title": "Own", "category": "floor", "aggregations": ("sum",)}
    return type("Own", (), {**words, **{key: staticmethod(lambda _, each=each: each) for key, each in answers.items()}})


def test_scores_are_aggregated_in_every_way_or_the_one_asked_for():
    evidence, numbered = Evidence(contributions(), generated()), answering(scores=np.arange(20.0))
    numbered.aggregations, numbered.chosen = ("max", "sum"), {"lambda": 0.5}
    maximum, total = baseline_credits(numbered(), evidence)
    assert [maximum.name, total.name] == ["own (max)", "own (sum)"]
    np.testing.assert_array_equal(maximum.credits, [4, 7, 15, 19])
    np.testing.assert_array_equal(total.credits, [10, 18, 92, 70])
    assert maximum.chosen == total.chosen == {"lambda": 0.5}
    (mean,) = baseline_credits(numbered(), evidence, "mean")
    assert mean.name == "own (mean)"
    np.testing.assert_array_equal(mean.credits, [2, 6, 11.5, 17.5])
    (count,) = baseline_credits(ImageCount(), evidence)
    assert (count.name, count.how, count.chosen) == ("image_count", "", {})


@pytest.mark.parametrize(("how", "expected"), [("sum", [-1, 9, 5]), ("mean", [-0.5, 9, 2.5]), ("max", [3, 9, 5])])
def test_aggregation_by_hand(how, expected):
    given = contributions()
    owner, names = np.array([2, 0, 1, 0, 2]), given.names[:5]
    few = replace(given, images=given.images[:5], owner=owner, contributors=("a", "b", "c"), names=names)
    np.testing.assert_allclose(aggregate([5, 3, 9, -4, 0], few, how), expected)


@pytest.mark.parametrize(
    ("scores", "how", "contributors", "said"),
    [
        (np.zeros(20), "median", ("ada", "bo", "cy", "di"), "'median'; accepted: sum, mean, max"),
        (np.zeros(19), "sum", ("ada", "bo", "cy", "di"), r"scores: shape \(19,\); one number for each of 20"),
        ([0] * 7 + [np.nan] + [0] * 12, "sum", ("ada", "bo", "cy", "di"), "that of 07 is not a finite number"),
        (np.zeros(20), "mean", ("ada", "bo", "cy", "di", "el"), "'el' gave no training image"),
    ],
)
def test_aggregation_refuses(scores, how, contributors, said):
    with pytest.raises(UserError, match=said):
        aggregate(scores, replace(contributions(), contributors=contributors), how)


def test_a_setting_has_a_name_of_its_own():
    def name(how, **options):
        return BaselineCredits("trak", how, np.zeros(4), options=options).name

    assert name("") == "trak"
    assert name("sum", lam=0.5, dimensions=512) == "trak (sum, dimensions=512, lam=0.5)"
    assert name("", precision="bf16") == "trak (precision=bf16)"
    assert name("max", layers=["up", "mid"], lam=None) == 'trak (max, lam=null, layers=["up","mid"])'


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


def test_refusals_say_what_is_accepted(tmp_path):
    with pytest.raises(UserError, match=r"'pixels' is unknown; accepted: image_count, random_ranking"):
        made("pixels", {}, tmp_path)
    with pytest.raises(UserError, match="needs the property that contributors are credited for"):
        baseline_credits(TrainingProperty(), Evidence(contributions(), generated()))
    with pytest.raises(UserError, match="image_count: scores no images, so that 'mean' of them cannot be taken"):
        baseline_credits(ImageCount(), Evidence(contributions(), generated()), "mean")
    for options, key in (({"coarse_patch": 7}, "coarse_patch"), ({"fine_weight": 1.5}, "fine_weight")):
        with pytest.raises(UserError, match=rf"baselines\.{key}: "):
            made("patch_similarity", options, tmp_path)


MODEL_FREE = ("pixel_similarity", "feature_similarity", "cluster_distance", "patch_similarity")
OF_MODEL = ("gradient_similarity", "trak", "d_trak", "journey_trak", "relative_influence", "renormalised_influence")
OF_MODEL += ("das", "influence_diagonal", "influence_kronecker")


@pytest.mark.parametrize("name", [*MODEL_FREE, *OF_MODEL])
def test_each_refuses_where_something_is_missing(name, tmp_path):
    baseline = made(name, {}, tmp_path)
    for refuses in (baseline.scores, baseline.check):
        with pytest.raises(UserError, match=f"^{name}: needs generated images, and there are none$"):
            refuses(Evidence(contributions(), generated(0)))
        if name in OF_MODEL:
            with pytest.raises(UserError, match=f"^{name}: needs the base model, and none was given$"):
                refuses(Evidence(contributions(), generated()))
        if name in ("pixel_similarity", "patch_similarity", "influence_diagonal"):
            with pytest.raises(UserError, match=rf"^{name}: generated images of shape \(4, 4, 3\); .* \(8, 8, 3\)"):
                refuses(Evidence(contributions(), generated(size=4)))


class WithPrompts:
    prompts = ("a", "b", "c")


def test_of_a_text_model_the_prompts_follow_the_seeds():
    seen = Evidence(contributions(), generated(4), sampling=Sampling(images=5, seed=7))
    assert seen.query_captions(WithPrompts(), "trak") == ("b", "c", "a", "b")  # of the seeds 7, 8, 9, 10
    assert Evidence(contributions(), generated(4)).query_captions(SimpleNamespace(prompts=()), "trak") is None


@pytest.mark.parametrize("sampling", [None, Sampling(images=3)])
def test_how_all_generated_images_were_sampled_has_to_be_known(sampling):
    seen = Evidence(contributions(), generated(4), sampling=sampling)
    with pytest.raises(UserError, match=r"^trak: needs to know how the 4 generated images were sampled$"):
        seen.query_captions(WithPrompts(), "trak")


def test_only_images_of_one_shape_can_be_compared():
    images = generated(4)
    np.testing.assert_array_equal(Evidence(contributions(), images).comparable_queries("trak"), images)
    with pytest.raises(UserError, match=r"^trak: .*\(4, 4, 3\); the training images' shape \(8, 8, 3\) is accepted"):
        Evidence(contributions(), generated(4, size=4)).comparable_queries("trak")
    with pytest.raises(UserError, match=r"^trak: needs generated images"):
        Evidence(contributions(), images[:0]).comparable_queries("trak")
