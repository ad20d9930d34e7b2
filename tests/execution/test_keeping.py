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


@pytest.fixture(params=["folder", "store"])
def keepers(request, tmp_path):
    """Two keepers of a kind: of the same folder or, with a store, on two machines."""
    store = Store(f"file://{tmp_path}/there") if request.param == "store" else None
    folders = [tmp_path / name / "kept" / "recipe" for name in ("a", "b" if store else "a")]
    return lambda kind: [Keeper(folder, kind, store) for folder in folders]


@pytest.mark.parametrize("kind", ["images", "model", "features"])
def test_what_was_kept_comes_back(keepers, kind, model):
    (keeper, other), before = keepers(kind), observation(model)
    keeper.keep(TASK, before)
    keeper.keep(TASK, before)  # again, as after an interruption
    assert keeper.kept(TASK) == other.kept(TASK) == (set(before.features) if kind == "features" else {kind})
    assert other.kept(OTHER) == other.kept(Task("1010", 0, "estimate")) == frozenset()
    assert other.find(OTHER, Extractors(), never) is None
    found = other.find(TASK, Extractors(), DDPM.load if kind == "model" else never)
    if kind == "images":
        np.testing.assert_array_equal(found.images, IMAGES)
        assert (found.model, found.features) == (None, {})
    elif kind == "model":
        assert found.model.fingerprint == model.fingerprint
        assert found.images is None
    else:
        assert found.images is None
        for option in ("layout", {"bins": 2, "name": "colours"}):
            np.testing.assert_array_equal(found.extracted(option).vectors, before.extracted(option).vectors)
        with pytest.raises(DiffcreditError, match="neither images nor features of 'colours' were kept"):
            found.extracted("colours")


def test_features_of_further_extractors_join_those_that_are_there(keepers):
    first, second = keepers("features")
    for keeper, extractor in ((first, "layout"), (second, "colours")):
        seen = Observation(Extractors(), IMAGES)
        seen.extracted(extractor)
        keeper.keep(TASK, seen)
        assert len(keeper.kept(TASK)) == (1 if extractor == "layout" else 2)
    found = first.find(TASK, Extractors(), never)  # though with a store it was fetched when there was less of it
    for extractor in ("layout", "colours"):
        expected = Extractors().extract(extractor, IMAGES)
        np.testing.assert_array_equal(found.extracted(extractor).vectors, expected.vectors)


def test_a_damaged_file_names_itself_and_any_number_of_contributors_fits_its_name(tmp_path):
    keeper, crowd = Keeper(tmp_path, "images"), Task("10" * 1000, 0, "estimate")
    keeper.keep(crowd, observation())
    assert keeper.kept(crowd) == {"images"}
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(DiffcreditError, match=f"{file}: damaged .*; remove it"):
        keeper.find(crowd, Extractors(), never)


def test_nothing_is_nothing(tmp_path):
    keeper = Keeper(tmp_path / "kept", "nothing")
    keeper.keep(TASK, observation())
    assert not (tmp_path / "kept").exists()
    assert keeper.kept(TASK) == frozenset()
    assert keeper.find(TASK, Extractors(), never) is None


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
