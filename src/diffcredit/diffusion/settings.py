"""The settings of training and sampling. Free of torch, so that reading a study file is quick."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BeforeValidator

PositiveInt = Annotated[int, Ge(1), Le(1_000_000_000)]  # things done one after another; more is a typing error
Count = Annotated[int, Ge(1), Le(1_000_000)]  # things in memory together, such as a batch
Rank = Annotated[int, Ge(1), Le(4096)]  # of a low-rank update; no attention is wider
Fraction = Annotated[float, Gt(0), Lt(1)]
Precision = Literal["auto", "float32", "bf16"]
Annealing = Literal["constant", "cosine", "linear"]  # the learning rate stays constant, or falls to zero


def distinct_prompts(prompts: Any) -> tuple[str, ...]:
    """Return a list of prompts as a tuple; raise a ValueError unless it has different texts, at least one."""
    if isinstance(prompts, str) or not isinstance(prompts, Sequence) or not prompts:
        raise ValueError("a list of at least one text is accepted")
    seen: set[str] = set()
    for prompt in prompts:
        if not isinstance(prompt, str) or not prompt.strip():
            raise ValueError(f"the prompt {prompt!r}: texts that are not empty are accepted, a number in quotes")
        if prompt in seen:
            raise ValueError(f"the prompt {prompt!r} is there twice; once is accepted")
        seen.add(prompt)
    return tuple(prompts)


Prompts = Annotated[tuple[str, ...], BeforeValidator(distinct_prompts)]
"""Different texts, at least one."""


@dataclass(frozen=True)
class Training:
    """Settings of a training on the denoising loss. Step k = 0, …, ``steps`` − 1 computes, with batch B_k,

    g_k = ∇ 1/|B_k| Σ_{i ∈ B_k} w(t_i) ‖noise_i − predict(x_{t_i}, t_i)‖² / (c·h·w),

    clips it to the norm ``gradient_clip`` (``null``: no clipping), and takes a step of the optimizer at the rate η_k.

    **The optimizer.** ``adam``, ``adamw`` (with decoupled ``weight_decay``, θ ← (1 − η_k·weight_decay) θ), ``sgd``
    (θ ← θ − η_k g_k), and ``adam8bit`` and ``adamw8bit``, which keep their moments in 8 bits (bitsandbytes). The
    learning rate grows linearly from η/warmup_steps to η in the first ``warmup_steps``. Then it stays (``constant``) or
    is annealed to zero (``cosine``, ``linear``).

    **The loss.** ``min_snr`` is the γ of Min-SNR weights w(t) (Hang et al. 2023); by default w = 1. ``flip`` mirrors
    every image with probability ½.

    **The result.** ``ema`` is the decay of a moving average of the weights (min(ema, (1 + k) / (10 + k)) after k
    steps); ``average_tail`` is the share of last steps whose weights are averaged. Either replaces the last iterate.

    **Memory and speed** change rounding only. ``micro_batch`` is the largest number of samples that go through the
    network at once, their gradients being added (by default the batch; fewer if memory runs out).
    ``gradient_checkpointing`` computes activations twice instead of keeping them. ``precision: bf16`` computes the
    network in bfloat16, with weights, loss and optimizer in float32; ``auto`` does so on a GPU that supports it.
    """

    # a misspelt key in a study file is an error
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    steps: PositiveInt
    batch_size: Count = 64
    learning_rate: Annotated[float, Gt(0)] = 1e-4
    schedule: Annealing = "constant"
    gradient_clip: Annotated[float, Gt(0)] | None = 1.0
    flip: bool = True
    ema: Fraction | None = None
    average_tail: Annotated[float, Gt(0), Le(1)] | None = None
    optimizer: Literal["adam", "adamw", "sgd", "adam8bit", "adamw8bit"] = "adam"
    weight_decay: Annotated[float, Ge(0)] = 0.0
    warmup_steps: Annotated[int, Ge(0)] = 0
    min_snr: Annotated[float, Gt(0)] | None = None
    micro_batch: Count | None = None
    gradient_checkpointing: bool = False
    precision: Precision = "auto"

    @property
    def averages(self) -> bool:
        """Whether averaged weights replace the last ones."""
        return self.ema is not None or self.average_tail is not None

    def __post_init__(self) -> None:
        if self.ema is not None and self.average_tail is not None:
            raise ValueError("ema and average_tail both replace the last weights; give one of them")
        if self.weight_decay > 0 and self.optimizer not in ("adamw", "adamw8bit"):
            raise ValueError(
                f"weight_decay {self.weight_decay:g} goes with optimizer adamw or adamw8bit, not {self.optimizer}"
            )
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} leaves none of {self.steps} steps; fewer than steps are accepted"
            )


@dataclass(frozen=True)
class Sampling:
    """Settings of generating ``images`` images, image i from the noise of seed ``seed + i``.

    ``scheduler``: ``ddim`` with η = 0; ``pndm``, Stable Diffusion's; or ``dpm``, DPM-Solver++ of second order, for few
    steps. ``guidance`` is how strongly a text-to-image model follows its prompt (7.5 by default; 1: no guidance); other
    models take none. ``precision`` is the network's: ``auto`` is ``bf16`` on a GPU that supports it.

    ``prompts`` are what images are generated for in place of the model's own prompts (``null``: these). The image of
    seed s follows prompt s mod k of all k.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    images: Annotated[int, Ge(1), Le(10_000_000)] = 1024
    steps: Annotated[int, Ge(1), Le(1000)] = 100  # no more than there are time steps
    scheduler: Literal["ddim", "pndm", "dpm"] = "ddim"
    seed: Annotated[int, Ge(0), Lt(2**62)] = 0  # torch takes 64 bits
    batch_size: Count = 256
    guidance: Annotated[float, Ge(0)] | None = None
    precision: Precision = "auto"
    prompts: Prompts | None = None

    def __post_init__(self) -> None:
        if self.prompts is not None:
            distinct_prompts(self.prompts)

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.images)

    @property
    def identity(self) -> dict[str, Any]:
        """All settings as ledgers and identities have them. Without stated prompts there is no key for them instead of
        an empty one, as in existing ledgers."""
        settings = asdict(self)
        prompts = settings.pop("prompts")
        return settings if prompts is None else {**settings, "prompts": list(prompts)}

    def prompts_of_images(self, own: Sequence[str]) -> tuple[str, ...] | None:
        """Return the prompt of each image, in the order of the seeds: a model's ``own`` prompts in turn, unless others
        are stated; None for a model that follows none."""
        if not own:
            return None
        followed = own if self.prompts is None else self.prompts
        return tuple(followed[seed % len(followed)] for seed in self.seeds)
