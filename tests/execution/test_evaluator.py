import threading
from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
import pytest
import torch

from diffcredit.diffusion import Sampling
from diffcredit.diffusion.session import current_session
from diffcredit.execution import Task
from diffcredit.execution.evaluator import ModelEvaluator, RetrainedModels, numerics
from diffcredit.features.extractors import Extractors

TASKS = [Task(coalition, 0, "estimate") for coalition in ("110", "011", "101", "010")]
SAMPLING = Sampling(images=3, steps=2, seed=5, batch_size=2)


class Canvas:
    """A model whose images are all of one brightness."""

    device = torch.device("cpu")

    def __init__(self, brightness: int) -> None:
        self.brightness = brightness
        self.sampled: list[tuple] = []

    def sample(self, seeds: Sequence[int], steps: int, batch_size: int, scheduler: str, guidance: float | None):
        self.sampled.append((list(seeds), steps, batch_size, scheduler, guidance))
        if self.brightness == 66:
            raise RuntimeError("no image comes out")
        return np.full((len(seeds), 4, 4, 3), self.brightness, dtype=np.uint8)


class Painting:
    """A retraining without training: the brightness tells who takes part. ``bad`` coalitions raise."""

    weights, at_once = "", 1
    error: BaseException = ValueError("the loss is NaN")

    def __init__(self, bad: str = "", short: bool = False) -> None:
        self.bad, self.short, self.seeds = bad, short, {}

    def models_for(self, coalitions: np.ndarray, seeds: Sequence[int]) -> Iterator[Canvas]:
        assert coalitions.dtype == np.bool_
        for coalition, seed in zip(coalitions, seeds, strict=True):
            text = "".join(str(int(member)) for member in coalition)
            self.seeds.setdefault(text, []).append(seed)
            if text == self.bad:
                if self.short:
                    return
                raise self.error
            yield Canvas(int(text))


class Brightness:
    name = "brightness"

    def measure(self, images):
        return float(images.mean())


class Broken:
    name = "broken"

    def measure(self, images):
        raise ValueError("no such measure")


class OfTheModel:
    name = "of_the_model"

    def measure_model(self, model):
        return model.brightness + 0.5


def evaluator(retraining=None, properties=None, seed: int = 0) -> ModelEvaluator:
    return ModelEvaluator(
        RetrainedModels(retraining or Painting(), SAMPLING, seed, Extractors(), Canvas), properties or [Brightness()]
    )


def values(evaluations) -> list[float | None]:
    return [item.values[0].value if item.values else None for item in evaluations]


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("bad", ["", *(task.coalition for task in TASKS)])
def test_one_evaluation_for_each_task_and_only_a_bad_coalition_fails(bad, short):
    retraining, calm = Painting(bad, short), Painting()
    results = list(evaluator(retraining).evaluate(TASKS))
    assert [Task(item.coalition, item.replicate, item.purpose) for item in results] == TASKS
    assert values(results) == [None if item.coalition == bad else float(item.coalition) for item in results]
    for item in (item for item in results if item.coalition == bad):
        assert (item.status, item.values) == ("failed", ())
        assert ("StopIteration" if short else "ValueError: the loss is NaN") in item.error
    list(evaluator(calm).evaluate(TASKS))
    for coalition, seeds in retraining.seeds.items():  # a failure changes no seed
        assert set(seeds) == set(calm.seeds[coalition])


def test_a_reference_is_no_coalition():
    """Its model is found by its replicate, in the order of the tasks, and the retraining is not asked for it."""
    tasks = [*TASKS[:2], Task("000", 7, "reference"), TASKS[2], Task("000", 9, "reference")]
    retraining = Painting()
    results = list(evaluator(retraining).evaluate(tasks))
    assert values(results) == [110, 11, 7, 101, 9]
    assert [item.purpose for item in results] == [task.purpose for task in tasks]
    assert retraining.seeds.keys() == {"110", "011", "101"}


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), OSError(28, "No space left on device")]
)
def test_a_trouble_of_the_machine_is_no_failure_of_the_coalition(error):
    retraining = Painting("011")
    retraining.error = error
    with pytest.raises(type(error)) as raised:
        list(evaluator(retraining).evaluate(TASKS))
    assert raised.value is error


def test_a_model_that_cannot_be_sampled_fails_that_coalition_only():
    class Dark(Painting):
        def models_for(self, coalitions, seeds):
            for model in super().models_for(coalitions, seeds):
                yield Canvas(66) if model.brightness == 11 else model

    retraining = Dark()
    results = list(evaluator(retraining).evaluate(TASKS))
    assert values(results) == [110, None, 101, 10]
    assert "no image comes out" in results[1].error
    assert all(len(seeds) == 1 for seeds in retraining.seeds.values())  # and nobody is trained again


def test_a_property_that_fails_leaves_the_others():
    class Careful(Brightness):
        def standard_error(self, images):
            return float(len(images))

    properties = [Broken(), Careful(), OfTheModel()]
    for item, expected in zip(evaluator(properties=properties).evaluate(TASKS), (110, 11, 101, 10), strict=True):
        assert item.status == "done"
        broken, brightness, of_the_model = item.values
        assert (broken.property, broken.value) == ("broken", None)
        assert "ValueError: no such measure" in broken.error
        assert (brightness.property, brightness.value, brightness.error) == ("brightness", expected, None)
        assert (of_the_model.property, of_the_model.value) == ("of_the_model", expected + 0.5)
        assert (brightness.standard_error, of_the_model.standard_error) == (3.0, None)


def test_all_coalitions_are_sampled_from_the_same_noises():
    seen = []

    class Watched(Painting):
        def models_for(self, coalitions, seeds):
            for model in super().models_for(coalitions, seeds):
                seen.append(model)
                yield model

    list(evaluator(Watched()).evaluate(TASKS))
    assert [model.sampled for model in seen] == [[([5, 6, 7], 2, 2, "ddim", None)]] * 4


def test_seeds_follow_from_study_coalition_and_replicate():
    def seed_of(study: int, coalition: str, replicate: int, company: Sequence[Task] = ()) -> int:
        retraining = Painting()
        list(evaluator(retraining, seed=study).evaluate([*company, Task(coalition, replicate, "estimate")]))
        return retraining.seeds[coalition][-1]

    one = seed_of(0, "110", 0)
    assert seed_of(0, "110", 0, company=TASKS[1:]) == one
    assert len({one, seed_of(1, "110", 0), seed_of(0, "110", 1)}) == 3


def test_what_the_record_tells(monkeypatch):
    assert numerics(Canvas(0), SAMPLING)["micro_batch"] is None
    monkeypatch.setattr(current_session(), "micro_batches", {("one",): 8, ("other",): 2})  # that memory forced
    (item,) = evaluator().evaluate(TASKS[:1])
    assert item.seconds.keys() == {"training", "sampling", "measuring"}
    assert all(seconds >= 0 for seconds in item.seconds.values())
    assert item.numerics == numerics(Canvas(0), SAMPLING)
    assert item.numerics["micro_batch"] == 2
    assert item.numerics["threads"] == torch.get_num_threads()
    assert item.numerics["sampling"] == {"path": "eager", "dtype": "float32"}
    # a wheel's metadata may leave out the local part of the version, such as +cu130
    assert item.versions["torch"] in (torch.__version__, torch.__version__.split("+")[0])
    assert datetime.fromisoformat(item.started) <= datetime.fromisoformat(item.finished)


def test_models_made_together_share_the_seconds_of_their_training(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("diffcredit.execution.evaluator.time.perf_counter", lambda: now[0])

    class Together(Painting):
        at_once = 3

        def models_for(self, coalitions, seeds):
            for place, model in enumerate(super().models_for(coalitions, seeds)):
                now[0] += {0: 6.0, 3: 2.0}.get(place, 0.0)
                yield model

    class Slow(Brightness):
        def measure(self, images):
            now[0] += 0.5
            return super().measure(images)

    items = list(evaluator(Together(), [Slow()]).evaluate(TASKS))
    assert [item.seconds for item in items] == [{"training": 2.0, "sampling": 0.0, "measuring": 0.5}] * 4
    assert evaluator(Together()).at_once == 3
    assert evaluator().at_once == 1


class OnGPU(Canvas):
    device = torch.device("cuda")


class Fleets(Painting):
    """Two models at once, on what calls itself a GPU; ``begun`` is set when the second fleet is trained."""

    at_once = 2

    def __init__(self, *about) -> None:
        super().__init__(*about)
        self.begun = threading.Event()

    def models_for(self, coalitions, seeds):
        if self.seeds:
            self.begun.set()
        return (OnGPU(model.brightness) for model in super().models_for(coalitions, seeds))


@pytest.fixture
def gpu(monkeypatch):
    """Streams, and what a GPU is called, are left out."""
    monkeypatch.setattr(ModelEvaluator, "_measure_on_own_stream", ModelEvaluator.measure)
    monkeypatch.setattr("diffcredit.execution.evaluator.numerics", lambda model, sampling: {})
    images = lambda model, sampling, often: model.sample(sampling.seeds, sampling.steps, 2, "ddim", None)  # noqa: E731
    monkeypatch.setattr("diffcredit.execution.evaluator.generate", images)


def in_turn(batches):
    """What ``more`` gives: one batch after the other, then none."""
    left = iter(batches)
    return lambda: next(left, ())


def test_a_fleet_is_measured_while_the_next_is_trained(gpu):
    retraining = Fleets()

    class Waiting(Brightness):
        def measure(self, images):
            assert retraining.begun.wait(20), "the next fleet waits for this"
            return super().measure(images)

    one = evaluator(retraining, [Waiting()])
    results = list(one.evaluate_pipelined(TASKS[:2], in_turn([TASKS[2:]])))
    assert [Task(item.coalition, item.replicate, item.purpose) for item in results] == TASKS
    assert values(results) == [110, 11, 101, 10]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), KeyboardInterrupt()], ids=repr)
def test_trouble_over_a_fleet_leaves_the_last_one_its_results(gpu, error):
    retraining = Fleets("101")
    retraining.error = error
    made = evaluator(retraining).evaluate_pipelined(TASKS[:2], in_turn([TASKS[2:]]))
    assert values([next(made), next(made)]) == [110, 11]
    with pytest.raises(type(error)):
        next(made)


def test_a_second_interrupt_measures_no_other_model(gpu, monkeypatch):
    retraining, measured, cancelled = Fleets("101"), [], threading.Event()
    retraining.error = KeyboardInterrupt()

    class Noting(Brightness):
        def measure(self, images):
            measured.append(images)
            assert cancelled.wait(20)
            return super().measure(images)

    def interrupted(futures, down_to=0):
        if retraining.begun.is_set():
            futures[-1].add_done_callback(lambda future: cancelled.set())
            raise KeyboardInterrupt
        yield from ()

    monkeypatch.setattr("diffcredit.execution.evaluator._results", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(evaluator(retraining, [Noting()]).evaluate_pipelined(TASKS[:2], in_turn([TASKS[2:]])))
    assert len(measured) == 1


def test_on_a_cpu_one_batch_is_done_before_the_next_is_asked_for():
    asked = []
    results = list(evaluator().evaluate_pipelined(TASKS[:2], lambda: asked.append(1) or TASKS[2:]))
    assert len(results) == 2
    assert not asked
