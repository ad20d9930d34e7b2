"""What a study may say about training and sampling. Free of torch, so that reading a study file is quick."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

PositiveInt = Annotated[int, Ge(1)]
Fraction = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True)
class Training:
    """One run of Adam on the denoising loss.

    ``schedule``: ``constant``, or ``cosine``, which anneals the rate to zero over ``steps``. ``ema`` is the
    decay of an exponential moving average of the weights (warmed up as min(ema, (1 + k) / (10 + k)) at step k);
    ``average_tail`` the share of last steps whose weights are averaged with equal weight. Either replaces the
    last iterate at the end; at most one of them may be given.
    """

    # a misspelt key in a study file is an error
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    steps: PositiveInt
    batch_size: PositiveInt = 64
    learning_rate: Annotated[float, Gt(0)] = 1e-4
    schedule: Literal["constant", "cosine"] = "constant"
    gradient_clip: Annotated[float, Gt(0)] = 1.0
    flip: bool = True
    ema: Fraction | None = None
    average_tail: Annotated[float, Gt(0), Le(1)] | None = None

    def __post_init__(self) -> None:
        if self.ema is not None and self.average_tail is not None:
            raise ValueError("ema and average_tail both replace the last weights; give one of them")


@dataclass(frozen=True)
class Sampling:
    """How a model's images are generated: ``images`` of them, image i from the noise of seed ``seed + i``."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    images: PositiveInt = 1024
    steps: Annotated[int, Ge(1), Le(1000)] = 100  # no more than there are time steps
    scheduler: Literal["ddim"] = "ddim"
    seed: Annotated[int, Ge(0), Lt(2**62)] = 0  # torch takes 64 bits
    batch_size: PositiveInt = 256

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.images)
