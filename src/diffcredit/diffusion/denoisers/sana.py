"""Sana: a transformer with linear attention over deeply compressed latents, and cross-attention to Gemma."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.denoisers.times import in_time_steps
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.errors import UserError

# Put before each text, as the pipeline does by default. It is a copy, so that conditions stay the same with another
# version of diffusers.
INSTRUCTION = (
    (
        "Given a user prompt, generate an 'Enhanced prompt' that provides detailed visual descriptions suitable "
        "for image generation. Evaluate the level of detail in the user prompt:"
    ),
    (
        "- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, textures, and spatial "
        "relationships to create vivid and concrete scenes."
    ),
    ("- If the prompt is already detailed, refine and enhance the existing details slightly without overcomplicating."),
    "Here are examples of how to transform or refine prompts:",
    (
        "- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat curled up in a round shape, "
        "sleeping peacefully on a warm sunny windowsill, surrounded by pots of blooming red flowers."
    ),
    (
        "- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, featuring glowing "
        "street lamps, a diverse crowd of people in colorful clothing, and a double-decker bus passing by "
        "towering glass skyscrapers."
    ),
    (
        "Please generate only the enhanced description for the prompt below and avoid including any additional "
        "commentary or evaluations:"
    ),
    "User Prompt: ",
)
SOLVER = "DPMSolverMultistepScheduler"


class Sana(TextDenoiser):
    """The pipeline's scheduler is either FlowMatchEulerDiscreteScheduler or a DPMSolverMultistepScheduler of flow
    matching, whose first order is Euler's method; both give σ in the same way."""

    network = "SanaTransformer2DModel"
    pipelines = ("SanaPipeline",)
    parts = {"text_encoder": ("Gemma2Model",), "tokenizer": ("GemmaTokenizer", "GemmaTokenizerFast")}  # noqa: RUF012
    guidance = 4.5
    density = Density(shift=3.0)  # as its authors trained it

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        config: Any = network.config
        timestep = in_time_steps(time) * config["timestep_scale"]
        return network(x, timestep=timestep, return_dict=False, **dict(condition or {}))[0]

    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        return self._encode(pipeline, text, list(INSTRUCTION))

    def nothing(self, pipeline: Any, pixels: int) -> Conditions:
        """Return the condition of no text, without the instruction, as the pipeline does."""
        return self._encode(pipeline, "", None)

    def _encode(self, pipeline: Any, text: str, instruction: list[str] | None) -> Conditions:
        hidden, mask, _, _ = pipeline.encode_prompt(
            text, False, device=pipeline.device, complex_human_instruction=instruction
        )
        return {"encoder_hidden_states": hidden[0], "encoder_attention_mask": mask[0].bool()}

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        checks.check_many_steps(folder, index, config)
        checks.check_channels(folder, self.component, config)
        checks.check_flow_scheduler(folder)
        if config.get("guidance_embeds"):
            raise UserError(
                f"{folder / self.component / 'config.json'}: guidance_embeds true: Sana-Sprint {checks.WHY_FEW_STEPS}; "
                "accepted: Sana"
            )
        scheduler = checks.part_config(folder, "scheduler")
        if scheduler.get("_class_name") == SOLVER and not scheduler.get("use_flow_sigmas"):
            raise UserError(
                f"{folder / 'scheduler' / 'scheduler_config.json'}: use_flow_sigmas false; accepted: true, as Sana is "
                "trained by flow matching"
            )

    def check_size(self, network: nn.Module, side: int) -> None:
        config: Any = network.config
        checks.check_multiple("this transformer", side, config["patch_size"])
