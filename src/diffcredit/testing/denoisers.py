"""The conformance check of denoisers, to be run by the author of one for a pipeline that is not known here::

def test_my_denoiser():
    check_denoiser(MyDenoiser(), "path/to/pipeline")
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diffcredit.baselines.gradients import GradientSettings
from diffcredit.baselines.gradients.per_image import PerImage, Samples, time_steps
from diffcredit.diffusion.adapters import projections
from diffcredit.diffusion.conditions import NOTHING, ClassLabels, Conditions
from diffcredit.diffusion.denoisers.base import PipelineDenoiser, TextDenoiser
from diffcredit.diffusion.diffusers_model import initial_noise
from diffcredit.diffusion.dropout import seeded_dropout
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.objectives import NoiseSchedule
from diffcredit.diffusion.pipeline import Pipeline, flow_scheduler
from diffcredit.diffusion.pretrained import read_json
from diffcredit.diffusion.text_to_image import TextToImageLoRA
from diffcredit.testing.designs import attempt, require
from diffcredit.testing.pipelines import kind_of, near, samples_of, whole_pipeline

TEXTS = ("a red boat", "harbour at dawn, oil on canvas, with many gulls and one ship far away", "A tree")
SEEDS, STEPS, RANK = (0, 1, 2), 4, 2  # the image of seed s follows text s
USUAL_SIDE = 8  # of latents, where the network's config has none


def check_denoiser(
    denoiser: PipelineDenoiser,
    pipeline: str | Path,
    *,
    pixels: int | None = None,
    call: Mapping[str, Any] | None = None,
) -> list[str]:
    """Raise a ConformanceError unless ``denoiser`` follows the contract of its base class on the ``pipeline`` of
    diffusers in a folder; a small one with random weights will do.

    It compares, in float32 on the CPU, the samples with those of the pipeline's own ``__call__``. ``pixels`` is the
    side of the images, by default that of the network's ``sample_size`` or a small one. ``call`` has further arguments
    of ``__call__``, such as the ``negative_prompt`` that stands for no text.

    Return the names of the adapted layers that the loss does not depend on: some networks have a few in their last
    block.
    """
    require(
        isinstance(denoiser, PipelineDenoiser),
        f"{type(denoiser).__name__} does not inherit from PipelineDenoiser or, for texts, TextDenoiser",
    )
    base = attempt(f"reading {pipeline}", lambda: Pipeline(Path(pipeline), denoiser, "float32"))
    subject = _Subject.of(base, pixels)
    _check_members(subject)
    _check_conditions(subject)
    _check_predictions(subject)
    _check_guidance(subject)
    without = _check_gradients(subject)
    for guidance in (denoiser.unguided, denoiser.guidance):
        _compare(subject, guidance, call or {})
    _check_adapter(subject, call or {})
    return without


@dataclass(frozen=True)
class _Subject:
    """What is checked: a fresh adapter on the pipeline, and one input for each of three texts."""

    base: Pipeline
    model: TextToImageLoRA
    texts: tuple[str, ...]
    x: Tensor
    t: Tensor

    @classmethod
    def of(cls, base: Pipeline, pixels: int | None) -> "_Subject":
        labels = base.conditioner.names if isinstance(base.conditioner, ClassLabels) else None
        texts = TEXTS if labels is None else labels[: len(SEEDS)]
        side = base.config.get("sample_size")
        pixels = pixels or (side if isinstance(side, int) else USUAL_SIDE) * base.stage.factor
        model = attempt(
            f"an adapter for images of {pixels} pixels",
            lambda: TextToImageLoRA.create(base, RANK, texts, None, pixels, seed=0),
        )
        t = torch.tensor([model.time_steps * k // 4 for k in (3, 2, 1)])
        return cls(base, model, texts, initial_noise(model.shape, SEEDS), t)

    @property
    def denoiser(self) -> PipelineDenoiser:
        return self.base.denoiser

    @property
    def conditions(self) -> Conditions:
        return self.base.conditioner.embed(self.texts, self.model.pixels)

    @property
    def nothing(self) -> Conditions:
        return self.base.conditioner.embed([NOTHING] * len(self.texts), self.model.pixels)

    @property
    def batch(self) -> Batch:
        places = torch.arange(len(self.x))
        return Batch(self.x, self.x, places, self.conditions, places)

    @torch.no_grad()
    def predict(self, x: Tensor, t: Tensor, conditions: Conditions, guidance: float | None = None) -> Tensor:
        time = self.model.objective.times(t)
        return attempt(
            "predict(network, x, time, condition, guidance)",
            lambda: self.denoiser.predict(self.model.network, x, time, conditions, guidance),
        )

    @torch.no_grad()
    def sample(self, guidance: float) -> Tensor:
        """Return the latents of one image for each text."""
        return self.model.denoise(SEEDS, STEPS, "ddim", guidance)


def _check_members(subject: _Subject) -> None:
    denoiser, kind = subject.denoiser, kind_of(subject.base)
    for target in denoiser.targets:
        require(
            bool(projections(subject.base.network(), (target,))),
            f"`targets`: no linear layer's name ends with {target!r}",
        )
    has = hasattr(kind, "load_lora_weights")
    require(
        denoiser.loads_adapters == has,
        f"`loads_adapters` is {denoiser.loads_adapters}; {kind.__name__} has {'' if has else 'no '}load_lora_weights",
    )
    if not isinstance(subject.model.objective, NoiseSchedule):
        scheduler = flow_scheduler(read_json(subject.base.folder / "scheduler" / "scheduler_config.json"))
        what = f"sigmas(scheduler, {STEPS}, {subject.model.size})"
        sigmas: Tensor = attempt(what, lambda: denoiser.sigmas(scheduler, STEPS, subject.model.size))
        require(
            sigmas.shape == (STEPS + 1,) and bool((sigmas.diff() < 0).all()) and float(sigmas[-1]) == 0,
            f"{what} gives {sigmas.tolist()}; {STEPS + 1} falling numbers down to 0 are expected",
        )


def _check_conditions(subject: _Subject) -> None:
    texts = [*subject.texts, NOTHING]
    names = [*map(repr, subject.texts), "no text"]
    with torch.no_grad():
        first, again = (
            attempt(
                "encode(pipeline, text, pixels)",
                lambda: [*subject.base.conditioner.encode(texts, subject.model.pixels, torch.device("cpu"))],
            )
            for _ in range(2)
        )
    outlines = [{name: (tuple(each.shape), each.dtype) for name, each in one.items()} for one in first]
    for name, outline, one, other in zip(names, outlines, first, again, strict=True):
        require(
            outline == outlines[0],
            f"the condition of {name} has the tensors {outline}, that of {names[0]} {outlines[0]}; the same shapes for "
            "all texts are expected, padded and with a mask",
        )
        require(
            all(each.equal(other[key]) for key, each in one.items()),
            f"the condition of {name} is another one when it is computed again",
        )
    for name, one in zip(names[1:], first[1:], strict=True):
        require(
            any(not each.equal(one[key]) for key, each in first[0].items()),
            f"the conditions of {names[0]} and {name} are the same",
        )


def _check_predictions(subject: _Subject) -> None:
    x, t, conditions = subject.x, subject.t, subject.conditions
    prediction = subject.predict(x, t, conditions)
    require(
        isinstance(prediction, Tensor) and prediction.shape == x.shape,
        f"predict gives {tuple(getattr(prediction, 'shape', ()))} for x {tuple(x.shape)}; the same shape is expected",
    )
    require(bool(prediction.isfinite().all()), "predict gives numbers that are not finite")
    _check_randomness(subject, prediction)
    for place in range(len(x)):
        cut = slice(place, place + 1)
        alone = subject.predict(x[cut], t[cut], {name: each[cut] for name, each in conditions.items()})
        require(
            near(alone[0], prediction[place], prediction),
            "predict gives other numbers for an image in a batch than for it alone; images, their times and their "
            "conditions go together row by row",
        )
    others = {
        "the time": subject.predict(x, t.flip(0), conditions),
        "the condition": subject.predict(x, t, {name: each.roll(1, 0) for name, each in conditions.items()}),
        "x": subject.predict(x.flip(0), t, conditions),
    }
    for what, other in others.items():
        require(not near(other, prediction), f"predict does not follow {what}")


def _check_randomness(subject: _Subject, prediction: Tensor) -> None:
    """Only dropout may be random, and only in training, where ours takes its place."""
    network, x = subject.model.network, subject.x
    for training in (False, True):
        with seeded_dropout(network, x.device):
            network.train(training)
            found = [subject.predict(x, subject.t, subject.conditions) for _ in range(2)]
            network.eval()
        require(
            found[0].equal(found[1]) and near(found[0], prediction),
            f"predict gives other numbers when it is called again{' in training' if training else ''}; `prepared` may "
            "switch off what is random in the network",
        )


def _check_guidance(subject: _Subject) -> None:
    denoiser, x, t = subject.denoiser, subject.x, subject.t
    following = subject.predict(x, t, subject.conditions)
    if denoiser.embeds_guidance(subject.model.network):
        told = [subject.predict(x, t, subject.conditions, guidance) for guidance in (1.0, 4.0)]
        require(not near(*told), "embeds_guidance(network) is true, but predict does not follow `guidance`")
        return
    without, unguided = subject.predict(x, t, subject.nothing), denoiser.unguided

    def guide(scale: float, rows: slice = slice(None)) -> Tensor:
        what = f"guide(without, following, {scale:g})"
        return attempt(what, lambda: denoiser.guide(without[rows], following[rows], scale))

    require(
        near(guide(unguided), following),
        f"guide(without, following, {unguided:g}) is not `following`, as `unguided` {unguided:g} says",
    )
    together = guide(unguided + 2)
    require(not near(together, following), "guide(without, following, scale) does not follow the scale")
    for place in range(len(x)):
        require(
            near(guide(unguided + 2, slice(place, place + 1))[0], together[place]),
            "guide gives other numbers for an image in a batch than for it alone",
        )


def _check_gradients(subject: _Subject) -> list[str]:
    """Return the names of the targets that no gradient reaches."""
    model = subject.model
    # of a fresh adapter B is 0, so that A has no gradient
    weights = {name: each for name, each in model.network.named_parameters() if ".lora_B." in name}
    noise = initial_noise(model.shape, [seed + len(SEEDS) for seed in SEEDS])
    loss = attempt("the loss of three images", lambda: model.loss(subject.batch, subject.t, noise).sum())
    found = attempt(
        "the gradient of the loss",
        lambda: torch.autograd.grad(loss, list(weights.values()), materialize_grads=True),
    )
    without = [name.partition(".lora_B.")[0] for name, each in zip(weights, found, strict=True) if not each.any()]
    require(
        2 * len(without) < len(weights),
        f"no gradient reaches {len(without)} of the {len(weights)} layers that `targets` names, such as {without[:1]}",
    )
    if not subject.denoiser.ragged:
        _check_vmap(subject, noise)
    return without


def _check_vmap(subject: _Subject, noise: Tensor) -> None:
    settings, count = GradientSettings("loss", time_steps=1), len(noise)
    t = time_steps(subject.model, 1).expand(count, -1)
    samples = Samples(subject.x[:, None], noise[:, None], t, subject.conditions)

    def gradients(at_once: int) -> Tensor:
        return PerImage(subject.model, settings, busy=at_once).gradients(samples)

    together = attempt("vmap through predict, which is needed unless `ragged` is true,", lambda: gradients(count))
    require(
        near(together, gradients(1)),
        "vmap through predict gives other gradients than one image after the other",
    )


def _compare(subject: _Subject, guidance: float, call: Mapping[str, Any], adapter: Path | None = None) -> None:
    """Compare the latents that are decoded in the end with those of the pipeline's own ``__call__``."""
    model, what = subject.model, f"sampling with guidance {guidance:g}"
    pipeline = whole_pipeline(subject.base)
    if pipeline is None:
        return
    if adapter is not None:
        attempt("load_lora_weights of the pipeline", lambda: pipeline.load_lora_weights(adapter))
    ours, followed = attempt(what, lambda: subject.sample(guidance)), list(subject.texts)
    if not isinstance(subject.denoiser, TextDenoiser):
        followed = subject.conditions["class_labels"].tolist()
    decoded, theirs = attempt(
        f"{what} by {type(pipeline).__name__}.__call__",
        lambda: samples_of(pipeline, model, ours, followed, seeds=SEEDS, steps=STEPS, guidance=guidance, call=call),
    )
    require(
        near(decoded, theirs),
        f"{what}{' and a saved adapter' if adapter else ''} differs from {type(pipeline).__name__}.__call__ by "
        f"{float((decoded - theirs).abs().max()):.2g} in latents up to {float(theirs.abs().max()):.2g}; it may be the "
        "time, the sign, the condition, `sigmas`, `nothing` or `guide`",
    )


def _check_adapter(subject: _Subject, call: Mapping[str, Any]) -> None:
    """Require that a trained adapter is saved, and gives the same samples in a copy of ours and in a plain pipeline."""
    model, draws, guidance = subject.model, torch.Generator().manual_seed(0), subject.denoiser.unguided
    before = subject.sample(guidance)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=0.1)
    after = subject.sample(guidance)
    require(not near(after, before), "samples do not follow the adapter")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        attempt("saving an adapter", lambda: model.save(folder))
        loaded = attempt("loading a saved adapter", lambda: TextToImageLoRA.load(folder, subject.base))
        require(
            replace(subject, model=loaded).sample(guidance).equal(after),
            "a saved adapter gives other samples when it is loaded",
        )
        if subject.denoiser.loads_adapters:
            _compare(subject, guidance, call, folder)
