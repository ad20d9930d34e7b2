"""Fleets and guided sampling of models that follow texts or labels, against the step-by-step path."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffcredit.diffusion import Sampling, Training
from diffcredit.diffusion.fast.compiling import traced
from diffcredit.diffusion.fast.fleet import Fleet, plan_among, train_fleet
from diffcredit.diffusion.fast.functional import Functions, functions_of
from diffcredit.diffusion.fast.sampling import FastSampler, sampler_for
from diffcredit.diffusion.fast.stacking import stacked
from diffcredit.diffusion.session import Session
from diffcredit.diffusion.stepwise import train_stepwise

from ..tiny import PowerCut, cut_at
from .tiny_models import KINDS, TEXTS, Base, TinyModel, data_of, latents, trained_weights, whole

PLACES = [torch.arange(9), torch.tensor([5]), torch.arange(3, 12, 2)]  # one is smaller than a batch
SEEDS = [3, 4, 5]
BASIC = Training(steps=3, batch_size=3, learning_rate=1e-3, flip=False)
FULL = dataclasses.replace(BASIC, flip=True, schedule="cosine", average_tail=0.5, gradient_clip=0.01)
SAMPLING = Sampling(images=5, steps=4, batch_size=3, seed=7, precision="float32")
FLEETS = [name for name in KINDS if not KINDS[name].denoiser.ragged]

Make = Callable[[int], TinyModel]


def together(crew: list[TinyModel], data: Any, settings: Training, numbers: torch.dtype, **options: Any) -> None:
    fleet = Fleet(crew[0], functions_of(Session(), crew[0], len(crew), numbers), data, settings)
    some = list(zip(PLACES, SEEDS, strict=True))[: len(crew)]
    fleet.load(crew, [plan_among(data, where, settings, seed, crew[0]) for where, seed in some])
    assert train_fleet(Session(), fleet, crew, **options) == [None] * len(crew)


def alone(model: TinyModel, data: Any, place: int, settings: Training) -> TinyModel:
    options: dict[str, Any] = {"checkpoint": None, "on_step": None, "on_batch": None, "ascend": False}
    train_stepwise(model, data.select(PLACES[place]), settings, seed=SEEDS[place], **options)
    return model


def distances(make: Make, settings: Training, numbers: torch.dtype, data: Any) -> list[float]:
    """Of each model of a fleet from the one that was trained alone, over how far that moved."""
    crew = [make(place) for place in range(3)]
    together(crew, data, settings, numbers)
    found = []
    for place, one in enumerate(crew):
        start, expected = trained_weights(make(place)), trained_weights(alone(make(place), data, place, settings))
        moved = (expected - start).norm()
        assert moved > 1e-3
        found.append(float((trained_weights(one) - expected).norm() / moved))
    return found


def double(model: TinyModel) -> TinyModel:
    model.network.double()
    return model


@pytest.mark.parametrize("settings", [BASIC, FULL], ids=["plain", "full"])
@pytest.mark.parametrize("name", ["dit", "sd3", "sana", "pixart", "flux"])
def test_whole_transformers_become_what_they_become_alone(name, settings):
    """With conditions that are dropped by key."""
    data = data_of(whole(name, 0), torch.float64)
    found = distances(lambda seed: double(whole(name, seed)), settings, torch.float64, data)
    assert max(found) < 1e-11, found


@pytest.mark.parametrize("name", ["dit", "sd3"])
def test_dropped_conditions_are_those_of_the_steps(name):
    """A fleet without dropout becomes something else."""
    data = data_of(whole(name, 0), torch.float64)
    with_dropout, without = (double(whole(name, 0, dropout=dropout)) for dropout in (0.3, 0.0))
    together([with_dropout], data, BASIC, torch.float64)
    together([without], data, BASIC, torch.float64)
    start = trained_weights(double(whole(name, 0)))
    moved = (trained_weights(without) - start).norm()
    assert (trained_weights(with_dropout) - trained_weights(without)).norm() > 0.01 * moved


@pytest.mark.parametrize("name", FLEETS)
def test_adapters_become_what_they_become_alone(name):
    base = Base(name, torch.float64)
    found = distances(base.adapted, FULL, torch.float64, data_of(base.adapted(0), torch.float64))
    assert max(found) < 1e-11, found


@pytest.mark.parametrize("name", FLEETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_in_float32(name, dtype):
    """On a base in float32 or bf16. The steps are along the gradient: Adam's are as long where the gradient is nothing
    but rounding. Convolutions round bf16 in another order for another batch; rounding a base to bf16 changes such steps
    by 3 % for U-Nets and by 1 % for Sana."""
    base, settings = Base(name, dtype), dataclasses.replace(FULL, optimizer="sgd", learning_rate=1.0)
    found = distances(base.adapted, settings, torch.float32, data_of(base.adapted(0)))
    convolves = dtype == torch.bfloat16 and name in ("sd", "sdxl", "sana")
    assert max(found) < (0.1 if convolves else 2e-5), found


@pytest.mark.parametrize("numbers", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_frozen_base_is_read_where_it_is(dtype, numbers):
    """Models share it; only one in float32 is converted, where the network computes in bf16."""
    base = Base("sd3", dtype)
    crew = [base.adapted(seed) for seed in range(3)]
    own = {weight.data_ptr() for weight in base.network().parameters()}
    functions = functions_of(Session(), crew[0], 3, numbers)
    fleet = Fleet(crew[0], functions, data_of(crew[0]), BASIC)
    sampler = FastSampler(crew[0], functions_of(Session(), crew[0], 1, numbers), SAMPLING)
    stacked = functions._model.network
    assert {weight.data_ptr() for weight in stacked.parameters() if not weight.requires_grad} == own
    for given in (fleet._given, sampler._weights):
        frozen = given[-len(own) :]
        assert {weight.dtype for weight in frozen} == {torch.bfloat16 if torch.bfloat16 in (dtype, numbers) else dtype}
        assert ({weight.data_ptr() for weight in frozen} == own) is (dtype == frozen[0].dtype)


def test_adapters_in_another_type_keep_their_steps_in_float32():
    """In bf16 a learning rate of 1e-5 would be rounded away."""
    base, settings = Base("sd3", torch.bfloat16), dataclasses.replace(BASIC, learning_rate=1e-5)
    crew = [base.adapted(seed) for seed in range(3)]
    together(crew, data_of(crew[0]), settings, torch.bfloat16)
    for seed, model in enumerate(crew):
        moved = (trained_weights(model) - trained_weights(base.adapted(seed))).abs()
        assert trained_weights(model).dtype == torch.float32
        assert (moved > 0).double().mean() > 0.9
        assert moved.max() < 4e-5


def test_a_fleet_that_was_cut_off_goes_on_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("diffcredit.diffusion.fast.fleet.LOOK_STEPS", 2)
    monkeypatch.setattr("diffcredit.diffusion.checkpoints.CHECKPOINT_SECONDS", -1.0)
    settings = dataclasses.replace(FULL, steps=6)
    base, file = Base("sd3", torch.bfloat16), tmp_path / "checkpoint.safetensors"
    data = data_of(base.adapted(0))
    entire, cut = ([base.adapted(seed) for seed in range(3)] for _ in range(2))
    together(entire, data, settings, torch.float32)
    with pytest.raises(PowerCut):
        together(cut, data, settings, torch.float32, checkpoint=file, identity=1, on_step=cut_at(4))
    seen: list[int] = []
    together(cut, data, settings, torch.float32, checkpoint=file, identity=1, on_step=lambda done, _: seen.append(done))
    assert seen == [4, 6]
    assert all(torch.equal(trained_weights(a), trained_weights(b)) for a, b in zip(cut, entire, strict=True))


@pytest.mark.parametrize("guidance", [None, "unguided", 3.5])
@pytest.mark.parametrize("name", KINDS)
def test_guided_images_are_those_of_the_model(name, guidance):
    base = Base(name)
    one, other = base.adapted(0), base.adapted(1)
    guidance = one.denoiser.unguided if guidance == "unguided" else guidance
    sampling = dataclasses.replace(SAMPLING, guidance=guidance)
    sampler = FastSampler(other, functions_of(Session(), one, 1, torch.float32), sampling)
    found = latents(sampler.sample(one))
    with torch.no_grad():
        expected = one.denoise(sampling.seeds, sampling.steps, "ddim", guidance)
        otherwise = one.denoise(sampling.seeds, sampling.steps, "ddim", 1.7)
    assert (found - expected).norm() < 1e-5 * expected.norm()
    assert (found - otherwise).norm() > 1e-3 * expected.norm()


def test_images_for_stated_prompts():
    one = Base("sd3").adapted(0)
    sampling = dataclasses.replace(SAMPLING, prompts=("a harbour", "rain"))
    found = FastSampler(one, functions_of(Session(), one, 1, torch.float32), sampling).sample(one)
    with torch.no_grad():
        expected, otherwise = (
            one.denoise(sampling.seeds, sampling.steps, "ddim", None, prompts) for prompts in (sampling.prompts, None)
        )
    assert (latents(found) - expected).norm() < 1e-5 * expected.norm()
    assert (latents(found) - otherwise).norm() > 1e-3 * expected.norm()


def test_a_sampler_is_of_models_with_the_same_prompts(monkeypatch):
    """Those of another study in this process may differ in their prompts alone."""
    session, base = Session(), Base("sd3")
    one, again, other = base.adapted(0), base.adapted(1), base.adapted(2)
    other.prompts = TEXTS[::-1]
    sampler = sampler_for(session, one, SAMPLING)
    assert sampler_for(session, again, SAMPLING) is sampler
    assert sampler_for(session, other, SAMPLING) is not sampler


@pytest.mark.parametrize("name", FLEETS)
def test_they_can_be_traced(name, monkeypatch):
    """As they are for the compiler: a trace computes the same, and has no weight of the base as a constant, which
    would be kept on disk."""
    graphs: list[tuple[Any, Any, Any]] = []

    def ready(self: Functions, function: Any, what: Any) -> Any:
        def called(*given: Any) -> Any:
            there = [each for each in given if each is not None]
            places = [place for place, each in enumerate(given) if each is None]

            def of_tensors(*some: torch.Tensor) -> Any:
                every: list[Any] = list(some)
                for place in places:
                    every.insert(place, None)
                return function(*every)

            graph, constants = traced(of_tensors, there)
            graphs.append((function(*given), graph(*there, *constants), constants))
            return graphs[-1][1]

        return called

    monkeypatch.setattr(Functions, "_ready", ready)
    base = Base(name, torch.bfloat16)
    crew = [base.adapted(seed) for seed in range(2)]
    settings = dataclasses.replace(BASIC, steps=1)
    together(crew, data_of(crew[0]), settings, torch.float32)
    sampling = dataclasses.replace(SAMPLING, images=2, steps=1)
    FastSampler(crew[0], functions_of(Session(), crew[0], 1, torch.float32), sampling).sample(crew[0])
    assert len(graphs) == 2
    shapes = {weight.shape for weight in base.network().parameters() if weight.ndim > 1}
    for expected, found, constants in graphs:
        for one, other in zip(found, expected, strict=True):
            assert (one - other).norm() <= 1e-2 * other.norm() + 1e-6
        assert not shapes & {constant.shape for constant in constants}


class Copies(TorchDispatchMode):
    """Collects operations from the CPU to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before, after = (
            {each.device.type for each in tree_leaves(tree) if isinstance(each, torch.Tensor)}
            for tree in ((args, kwargs), result)
        )
        if "cpu" in before and "meta" in after:
            self.seen.append(str(func))
        return result


@pytest.mark.parametrize("name", FLEETS)
def test_a_step_copies_nothing_from_the_host(name):
    """A recorded step could not. Tensors without values stand for those on a GPU."""
    model = Base(name, torch.float64).adapted(0)
    guide = model.guide(range(3), 3.5)
    model.network = stacked(model.network.to("meta"), 1, cuda=False)
    times = model.objective.times(torch.arange(3)).to("meta")
    wide = [each.double() if each.is_floating_point() else each for each in guide.tensors]
    there = guide.with_tensors([each.to("meta") for each in wide])
    with Copies() as copies:
        x = torch.zeros(3, *model.shape, dtype=torch.float64).to("meta")
        assert copies.seen == ["aten._to_copy.default"]
        model.guided(x, times, there).sum().backward()
    assert len(copies.seen) == 1
