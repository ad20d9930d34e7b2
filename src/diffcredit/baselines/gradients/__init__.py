"""Per-image gradients of the base model, randomly projected: the rows of Φ, cached on disk, and their settings."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

Kind = Literal["loss", "prediction_norm", "prediction_mean", "journey_loss"]
"""The objective that is differentiated by the trainable parameters; a mean over time steps t with fixed noises ε:

- ``loss``: ‖ε − ε_θ(x_t, t)‖², the model's own training loss of each sample;
- ``prediction_norm``: ‖ε_θ(x_t, t)‖² (D-TRAK; Zheng et al. 2024), a mean over dimensions as the loss is;
- ``prediction_mean``: the mean over dimensions of ε_θ(x_t, t) itself; the gradient of each time step is scaled to
  length 1 before the mean over time steps (DAS; Lin et al. 2025);
- ``journey_loss`` of a generated image: the loss at x̂₀(x̃_t), the clean image that the model predicts from the noisy x̃_t
  on the image's own sampling path (Journey-TRAK; Georgiev et al. 2023).
"""

DIMENSIONS = 2048  # of the random projection by default; fewer where fewer parameters are trained


@dataclass(frozen=True)
class GradientSettings:
    """Everything but the model and the images that determines a row of Φ; options as in ``trak.Gradients``."""

    kind: Kind
    time_steps: Annotated[int, Ge(1)] = 10
    """J evenly spaced time steps t_j = ⌊(j + ½) T / J⌋, each with a noise derived from the seed, the image and j."""
    dimensions: Annotated[int, Ge(1)] | None = None
    layers: tuple[str, ...] | None = None
    seed: int = 0
    precision: Literal["float32", "bf16"] = "float32"
    """``bf16``: on a GPU the network computes in bfloat16, with weights, losses and gradients in float32."""
