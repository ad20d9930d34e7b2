"""Z-Image: a transformer of one stream, where latents and texts come as lists of different lengths."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.patches import dynamic_shift
from diffcredit.diffusion.denoisers.times import TIME_STEPS, in_time_steps
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.errors import UserError

TOKENS = 512  # of a text, as the pipeline takes by default
PATCH = 2
TURBO_SHIFT, OWN_SHIFT = 3.0, 6.0


class ZImage(TextDenoiser):
    """The network counts time from noise to image, and predicts the velocity in that direction.

    A text's length decides the positions of the image's tokens, so texts are cut to their length for each call. That
    depends on the data: gradients of single samples are taken one by one, not by ``vmap``.
    """

    network = "ZImageTransformer2DModel"
    pipelines = ("ZImagePipeline",)
    parts = {  # noqa: RUF012
        "text_encoder": ("Qwen3Model", "Qwen3ForCausalLM"),
        "tokenizer": ("Qwen2Tokenizer", "Qwen2TokenizerFast"),
    }
    guidance = 5.0
    unguided = 0.0
    ragged = True
    density = Density(shift=2.0)

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        assert condition is not None
        texts = [states[there] for states, there in zip(condition["hidden_states"], condition["mask"], strict=True)]
        backwards = (TIME_STEPS - in_time_steps(time)) / TIME_STEPS  # 1 − σ, rounded as in the pipeline
        predictions = network(list(x[:, :, None]), backwards, texts, return_dict=False)[0]
        return -torch.stack(predictions)[:, :, 0]

    def guide(self, without: Tensor, following: Tensor, scale: float) -> Tensor:
        """Return the guided prediction; the pipeline's scale is the usual one less 1."""
        return following + scale * (following - without)

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        (hidden,), _ = pipeline.encode_prompt(text, pipeline.device, False, max_sequence_length=TOKENS)
        return {
            "hidden_states": pad(hidden, (0, 0, 0, TOKENS - len(hidden))),
            "mask": torch.arange(TOKENS, device=hidden.device) < len(hidden),
        }

    def outline(self, config: Mapping[str, Any]) -> Conditions:
        return {
            "hidden_states": torch.empty(TOKENS, config["cap_feat_dim"], device="meta"),
            "mask": torch.empty(TOKENS, dtype=torch.bool, device="meta"),
        }

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        shift = dynamic_shift(scheduler.config, (side // PATCH) ** 2)  # not used by a static scheduler
        scheduler.set_timesteps(sigmas=torch.linspace(1.0, 1 / steps, steps).tolist(), mu=shift)
        return torch.as_tensor(scheduler.sigmas).cpu()

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        checks.check_many_steps(folder, index, config)
        checks.check_channels(folder, self.component, config)
        checks.check_flow_scheduler(folder)
        if config.get("siglip_feat_dim") is not None:
            raise UserError(
                f"{folder / self.component / 'config.json'}: siglip_feat_dim {config['siglip_feat_dim']}: a network "
                "that edits images; accepted: Z-Image"
            )
        # The two differ in nothing else but their weights.
        if checks.part_config(folder, "scheduler").get("shift") == TURBO_SHIFT:
            raise UserError(
                f"{folder / 'scheduler' / 'scheduler_config.json'}: shift {TURBO_SHIFT:g}: Z-Image-Turbo "
                f"{checks.WHY_FEW_STEPS}; accepted: Z-Image, with shift {OWN_SHIFT:g}"
            )

    def check_size(self, network: nn.Module, side: int) -> None:
        checks.check_multiple("Z-Image", side, PATCH)
        config: Any = network.config
        most = PATCH * min(config["axes_lens"][1:])
        if side > most:
            raise UserError(f"latents of {side} × {side}; this network has places for {most} × {most}")
