import numpy as np
import pytest

from diffcredit.diffusion import Sampling
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.generating import generate
from diffcredit.errors import DiffcreditError
from diffcredit.execution import Task
from diffcredit.execution.evaluator import KeptModels, ModelEvaluator
from diffcredit.execution.keeping import Keeper
from diffcredit.features.extractors import Extractors
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.properties.measuring import Observation
from diffcredit.util.store import Store

TASK, OTHER = Task("101", 0, "estimate"), Task("101", 1, "estimate")
SAMPLING = Sampling(steps=2, images=5)
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)


def never(folder):
    raise AssertionError("no model was kept")


@pytest.fixture(scope="module")
def model() -> DDPM:
    return DDPM.create("tiny", 8, 0)


def observation(model=None) -> Observation:
    observed = Observation(Extractors(), IMAGES, model)
    observed.extracted("layout")
    observed.extracted({"name": "colours", "bins": 2})
    return observed


def test_images_come_back_as_they_were(tmp_path):
    keeper = Keeper(tmp_path, "images")
    keeper.keep(TASK, observation())
    assert keeper.kept(TASK) == {"images"}
    found = keeper.find(TASK, Extractors(), never)
    np.testing.assert_array_equal(found.images, IMAGES)
    assert (found.model, found.features) == (None, {})
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DiffcreditError, match=f"{file}: damaged .*; remove it"):
        keeper.find(TASK, Extractors(), never)


def test_features_come_back_for_their_extractors_alone(tmp_path):
    keeper, extractors = Keeper(tmp_path, "features"), Extractors()
    before = observation()
    keeper.keep(TASK, before)
    assert keeper.kept(TASK) == set(before.features)
    found = keeper.find(TASK, extractors, never)
    assert found.images is None
    np.testing.assert_array_equal(found.extracted("layout").vectors, before.extracted("layout").vectors)
    np.testing.assert_array_equal(
        found.extracted({"bins": 2, "name": "colours"}).vectors,
        extractors.extract({"name": "colours", "bins": 2}, IMAGES).vectors,
    )
    with pytest.raises(DiffcreditError, match="neither images nor features of 'colours' were kept"):
        found.extracted("colours")


def test_features_of_further_extractors_come_to_those_that_are_there(tmp_path):
    keeper = Keeper(tmp_path, "features")
    first, second, both = (Observation(Extractors(), IMAGES) for _ in range(3))
    first.extracted("layout")
    second.extracted("colours")
    for option in ("layout", "colours"):
        both.extracted(option)
    keeper.keep(TASK, first)
    keeper.keep(TASK, second)
    found = keeper.find(TASK, Extractors(), never)
    assert found.features.keys() == both.features.keys() == keeper.kept(TASK)
    for extractor, features in both.features.items():
        np.testing.assert_array_equal(found.features[extractor].vectors, features.vectors)


def test_a_model_comes_back_with_every_weight(tmp_path, model):
    keeper = Keeper(tmp_path, "model")
    keeper.keep(TASK, observation(model))
    assert keeper.kept(TASK) == {"model"}
    found = keeper.find(TASK, Extractors(), DDPM.load)
    assert found.model.fingerprint == model.fingerprint
    assert found.images is None


def test_nothing_is_nothing(tmp_path):
    keeper = Keeper(tmp_path / "kept", "nothing")
    keeper.keep(TASK, observation())
    assert not (tmp_path / "kept").exists()
    assert keeper.kept(TASK) == frozenset()
    assert keeper.find(TASK, Extractors(), never) is None


@pytest.mark.parametrize("kind", ["images", "features", "model"])
def test_each_coalition_and_replicate_has_its_own(kind, tmp_path, model):
    keeper = Keeper(tmp_path, kind)
    keeper.keep(TASK, observation(model))
    keeper.keep(TASK, observation(model))  # again, as after an interruption
    assert keeper.kept(OTHER) == frozenset()
    assert keeper.kept(Task("1010", 0, "estimate")) == frozenset()
    assert len(list(tmp_path.iterdir())) == 1
    crowd = Task("10" * 1000, 0, "estimate")  # two thousand contributors' name fits a file
    keeper.keep(crowd, observation(model))
    assert keeper.kept(crowd)


def kept_evaluator(folder, properties):
    return ModelEvaluator(KeptModels(Keeper(folder, "nothing"), SAMPLING, Extractors(), DDPM.load), properties)


def test_a_kept_model_is_sampled_from_the_same_noises_as_before(tmp_path, model):
    Keeper(tmp_path, "model").keep(TASK, Observation(Extractors(), None, model))
    (evaluation,) = kept_evaluator(tmp_path, [Colourfulness()]).evaluate([TASK])
    (value,) = evaluation.values
    assert value.value == Colourfulness().measure(generate(model, SAMPLING))
    assert value.images == 5
    assert (evaluation.coalition, evaluation.replicate, evaluation.purpose) == ("101", 0, "estimate")


def test_a_kept_model_is_not_sampled_where_nobody_needs_images(tmp_path, model, monkeypatch):
    Keeper(tmp_path, "model").keep(TASK, Observation(Extractors(), None, model))
    monkeypatch.setattr(DDPM, "sample", never)
    loss = HeldoutLoss(time_steps=1)
    loss.restore({"images": IMAGES})
    (evaluation,) = kept_evaluator(tmp_path, [loss]).evaluate([TASK])
    (value,) = evaluation.values
    assert value.value == loss.measure_model(model)
    assert value.images is None


def test_what_was_not_kept_is_an_error(tmp_path):
    (failed,) = kept_evaluator(tmp_path, [Colourfulness()]).evaluate([OTHER])
    assert failed.status == "failed"
    assert "nothing was kept of coalition 101, replicate 1" in failed.error


@pytest.mark.parametrize("kind", ["images", "model", "features"])
def test_with_a_store_any_machine_finds_it(kind, model, tmp_path):
    store = Store(f"file://{tmp_path}/there")
    Keeper(tmp_path / "a" / "kept" / "recipe", kind, store).keep(TASK, observation(model))
    assert not (tmp_path / "a").exists()
    elsewhere = Keeper(tmp_path / "b" / "kept" / "recipe", "nothing", store)
    assert elsewhere.kept(OTHER) == frozenset()
    assert elsewhere.kept(TASK) == Keeper(tmp_path / "a" / "kept" / "recipe", kind, store).kept(TASK) != frozenset()
    found = elsewhere.find(TASK, Extractors(), DDPM.load)
    assert elsewhere.find(OTHER, Extractors(), DDPM.load) is None
    if kind == "images":
        np.testing.assert_array_equal(found.images, IMAGES)
    elif kind == "model":
        assert found.model.fingerprint == model.fingerprint
    else:
        np.testing.assert_array_equal(found.extracted("layout").vectors, observation().extracted("layout").vectors)


def test_features_in_a_store_grow(tmp_path):
    store, extractors = Store(f"file://{tmp_path}/there"), Extractors()
    first, second = (Keeper(tmp_path / name / "kept" / "recipe", "features", store) for name in "ab")
    for keeper, extractor in ((first, "layout"), (second, "colours")):
        seen = Observation(extractors, IMAGES)
        seen.extracted(extractor)
        keeper.keep(TASK, seen)
        assert len(keeper.kept(TASK)) == (1 if extractor == "layout" else 2)
    np.testing.assert_array_equal(  # though it was fetched when there was less of it
        first.find(TASK, extractors, never).extracted("colours").vectors, extractors.extract("colours", IMAGES).vectors
    )
