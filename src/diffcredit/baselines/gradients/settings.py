"""Which gradients are taken."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

Kind = Literal["loss", "prediction_norm", "prediction_mean", "journey_loss"]
"""What is differentiated with respect to the trainable parameters, the mean over time steps t with fixed noises ε:

- ``loss``: ‖ε − ε_θ(x_t, t)‖², the model's own training loss of each sample;
- ``prediction_norm``: ‖ε_θ(x_t, t)‖² (D-TRAK; Zheng et al. 2024), a mean over dimensions as the loss is;
- ``prediction_mean``: the mean over dimensions of ε_θ(x_t, t) itself; the gradient of each time step is scaled to
  length 1 before the mean over time steps (DAS; Lin et al. 2025);
- ``journey_loss`` of a generated image: the loss at x̂₀(x̃_t), what the model predicts from the noisy x̃_t on the image's
  own sampling path (Journey-TRAK; Georgiev et al. 2023).
"""

DIMENSIONS = 2048
"""Of the random projection where none are asked for; fewer where fewer parameters are trained."""


@dataclass(frozen=True)
class GradientSettings:
    """``time_steps`` evenly spaced ones t_j = ⌊(j + ½) T / J⌋ with one noise each, which follows from the seed, the
    image's content and j; ``dimensions`` of the random projection (None: 2048, or as many as there are parameters where
    these are fewer); ``layers``: only parameters whose names contain one of these texts (None: all that are trained).
    ``precision: bf16`` computes the network in bfloat16 where the model is on a GPU, with weights, losses and gradients
    in float32."""

    kind: Kind
    time_steps: Annotated[int, Ge(1)] = 10
    dimensions: Annotated[int, Ge(1)] | None = None
    layers: tuple[str, ...] | None = None
    seed: int = 0
    precision: Literal["float32", "bf16"] = "float32"
