"""Properties for some prompts, against the same property of images that are selected by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Context
from diffcredit.properties.base import as_property, has_standard_error, has_value_of_each, named_property, needs_fitting
from diffcredit.properties.classes import ClassCoverage, ClassShare, ClusterEntropy, InceptionScore
from diffcredit.properties.clip import Aesthetic, ClipSimilarity
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.properties.distances import FrechetDistance, KernelDistance
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.properties.manifolds import Coverage, Density, Precision, Recall
from diffcredit.properties.measuring import Observation, measure_all
from diffcredit.properties.memorisation import MemorisedShare, NearestDistance
from diffcredit.properties.prompted import PromptedProperty, for_prompts, images_of, in_words, with_captions
from diffcredit.util.plugins import settings_of
from properties.fake_features import FAKE, fitted, pictures

ALL = ("a cat", "a dog", "the sea")
M = 90
PROMPTS = tuple(ALL[(seed + 2) % 3] for seed in range(M))
CHOSEN = ("the sea", "a dog")
SMALL = {"name": FAKE, "width": 4}
PROPERTIES = [
    lambda: Colourfulness(percentile=30),
    lambda: InceptionScore(features=FAKE, splits=2),
    lambda: ClassCoverage(features=FAKE),
    lambda: ClassShare("red fox", features=FAKE),
    lambda: ClusterEntropy(4, features=FAKE),
    lambda: FrechetDistance(features=SMALL),
    lambda: KernelDistance(features=FAKE),
    lambda: Precision(features=FAKE),
    lambda: Density(features=FAKE),
    lambda: Recall(features=FAKE),
    lambda: Coverage(features=FAKE),
    lambda: KernelDistance(features=FAKE, reference="heldout"),
    lambda: Aesthetic(features={"name": FAKE, "width": 768}),
    lambda: ClipSimilarity(features=FAKE),
    lambda: ClipSimilarity("a mill", features=FAKE),
]


def given(captioned=True):
    """Of 60 training and 30 held-out images, two in three have one of the chosen prompts as their caption."""
    return Contributions(
        pictures(60, seed=1),
        np.arange(60) % 2,
        ("a", "b"),
        tuple(map(str, range(60))),
        pictures(30, seed=2),
        captions=tuple(ALL[i % 3] for i in range(60)) if captioned else None,
        heldout_captions=tuple(ALL[i % 3] for i in range(30)) if captioned else None,
    )


def context(captioned=True):
    return Context(pictures(M, seed=3), given(captioned), Extractors(), PROMPTS)


def part_by_hand(captioned=True):
    """The context of the chosen prompts alone: every image with the first caption is left out."""
    whole, rows = context(captioned), [j for j in range(M) if PROMPTS[j] != "a cat"]
    contributions = whole.contributions
    if captioned:
        kept, seen = ([i for i in range(count) if i % 3] for count in (60, 30))
        contributions = Contributions(
            contributions.images[kept],
            contributions.owner[kept],
            ("a", "b"),
            tuple(map(str, kept)),
            contributions.heldout[seen],
        )
    return Context(whole.generated[rows], contributions, whole.extractors, tuple(PROMPTS[j] for j in rows)), rows


def measured(prop, images):
    (found,) = measure_all([prop], Observation(Extractors(), images))
    assert found.error is None
    return found


@pytest.mark.parametrize("captioned", [True, False])
@pytest.mark.parametrize("make", PROPERTIES)
def test_the_same_as_the_images_selected_by_hand(make, captioned):
    images, (part, rows) = pictures(M, seed=4), part_by_hand(captioned)
    prop = fitted(for_prompts(make(), CHOSEN), context(captioned))
    alone = as_property(make())
    if needs_fitting(alone):
        fitted(alone, part)
    by_hand = measured(alone, images[rows])
    assert measured(prop, images) == by_hand
    assert by_hand.images == 60
    assert (prop.name, prop.unit, prop.range, prop.bias) == (alone.name, alone.unit, alone.range, alone.bias)
    assert has_standard_error(prop) == has_standard_error(alone)
    assert has_value_of_each(prop) == has_value_of_each(alone)
    again = for_prompts(make(), CHOSEN)  # as in another process
    again.restore({name: array.copy() for name, array in prop.fit(context(captioned)).items()})
    assert measured(again, images) == by_hand


@pytest.mark.parametrize("make", [lambda: NearestDistance(), lambda: MemorisedShare()])
def test_a_copy_is_a_copy_whatever_its_caption(make):
    images, rows = pictures(M, seed=4), part_by_hand()[1]
    images[rows[:3]] = given().images[[0, 3, 6]]  # of the caption that is not among the prompts
    prop = fitted(for_prompts(make(), CHOSEN), context())
    alone = fitted(make(), dataclasses.replace(context(), generated=part_by_hand()[0].generated))
    assert measured(prop, images) == measured(alone, images[rows])
    if isinstance(prop.whole, MemorisedShare):
        assert measured(prop, images).value == pytest.approx(3 / 60)


def test_a_users_property_sees_its_own_images_alone(tmp_path):
    class Seen:
        name, prompts = "seen", "a member of its own"

        def fit(self, context):
            return {"training": np.array([len(context.contributions.images)])}

        def restore(self, state):
            assert set(state) == {"training"}
            self.training = int(state["training"][0])

        def measure(self, images):
            return len(images) + self.training / 1000

    prop = fitted(for_prompts(named_property(Seen(), "mine:Seen", "seas"), ["the sea"]), context())
    assert measured(prop, pictures(M)).value == 30.02
    assert (prop.name, prop.prompts, prop.ordered) == ("seas", ("the sea",), True)
    function = for_prompts(as_property(lambda images: float(len(images))), CHOSEN)
    assert measured(fitted(function, context()), pictures(M)).value == 60


def test_settings_are_those_of_the_whole_property():
    assert settings_of(for_prompts(Colourfulness(20), CHOSEN), {}) == settings_of(Colourfulness(20), {})
    assert for_prompts(prop := Colourfulness(), None) is prop


def test_words():
    prop = for_prompts(Colourfulness(), ["a harbour"])
    assert prop.title == "Colourfulness for “a harbour”"
    assert prop.explanation.endswith("extremely colourful. Only images generated for “a harbour” count.")
    assert in_words("abcd") == "“a”, “b”, “c” and 1 more prompt"
    assert in_words(["a\nb", *"bcde"]) == "“a\\nb”, “b”, “c” and 2 more prompts"


def test_how_many_images_count():
    prop = for_prompts(Colourfulness(), CHOSEN)
    prop.choose(PROMPTS)
    assert (images_of(prop, M), images_of(Colourfulness(), M)) == (60, M)


@pytest.mark.parametrize(
    ("prop", "prompts", "message"),
    [
        (Colourfulness(), None, "prompts: the model follows no prompts; leave them out"),
        (
            Colourfulness(),
            ("a cat", "a mill"),
            "prompts: none of the 2 images is generated for 'the sea'; accepted: 'a cat', 'a mill'",
        ),
        (ClipSimilarity(), None, "prompts: the model follows no prompts"),
    ],
)
def test_prompts_that_no_image_is_generated_for(prop, prompts, message):
    with pytest.raises(UserError) as error:
        for_prompts(prop, CHOSEN).check_prompts(prompts)
    assert str(error.value).startswith(message)


def test_only_some_of_many_prompts_are_named():
    with pytest.raises(UserError, match=r"accepted: 'prompt 7', .* and 37 more$"):
        for_prompts(Colourfulness(), ["prompt 7x"]).choose([f"prompt {k}" for k in range(40)])


def test_the_model_itself_has_no_prompts():
    with pytest.raises(UserError, match="prompts: heldout_loss measures the model itself, not its images; leave"):
        for_prompts(HeldoutLoss(), CHOSEN)


def test_needs_are_checked_against_the_part():
    entropy = for_prompts(ClusterEntropy(61, features=FAKE), CHOSEN)
    entropy.choose(PROMPTS)
    for_hand = "for its prompts there are 60 of 90 generated images and 40 of 60 training images"
    with pytest.raises(UserError, match=rf"61 clusters of 60 generated images; .* \({for_hand}\)"):
        entropy.check(given(), M)
    ClusterEntropy(61, features=FAKE).check(given(), M)
    fid = for_prompts(FrechetDistance(features={"name": FAKE, "width": 45}), CHOSEN)
    fid.choose(PROMPTS)
    with pytest.raises(UserError, match=r"40 images in 'contributions' for features of 45 .* 40 of 60 training images"):
        fid.check_extractor(SimpleNamespace(dimensions=45), given())
    fid.whole.check_extractor(SimpleNamespace(dimensions=45), given())
    other = for_prompts(KernelDistance(features=FAKE), ["a mill"])
    other.choose(["a mill"] * M)
    with pytest.raises(UserError, match=r"0 images in 'contributions'; at least 2 .* and 0 of 60 training images"):
        other.check(given(), M)


def test_images_of_other_seeds_are_refused():
    prop = fitted(for_prompts(Colourfulness(), CHOSEN), context())
    (found,) = measure_all([prop], Observation(Extractors(), pictures(M - 1)))
    assert "colourfulness: 89 images for 90 seeds; with prompts, one image each in the order" in found.error


def test_captions_choose_training_and_held_out_images():
    some = with_captions(dataclasses.replace(given(), heldout_names=tuple(f"h{k}" for k in range(30))), ["a dog"])
    assert some.names == tuple(str(k) for k in range(60) if k % 3 == 1)
    assert some.heldout_names == tuple(f"h{k}" for k in range(30) if k % 3 == 1)
    assert some.counts.tolist() == [10, 10]
    assert set(some.captions) == set(some.heldout_captions) == {"a dog"}
    bare = dataclasses.replace(given(), heldout_captions=("",) * 30)
    assert len(with_captions(bare, ["a dog"]).heldout) == 30
    assert isinstance(for_prompts(Colourfulness(), ["a dog"]), PromptedProperty)
