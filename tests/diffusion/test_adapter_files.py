"""Adapters in the files of each trainer, on each pipeline, against diffusers' ``load_lora_weights``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from diffcredit.diffusion.adapter_files import read_adapter
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.text_to_image import TextToImageLoRA

from . import tiny_pipelines, tiny_text_pipelines, tiny_text_pipelines_b, trained_adapters
from .trained_adapters import Factors, by_ai_toolkit, by_diffusers, by_kohya, factors_of, in_sgm, random_factors

PROMPTS = ("a cat", "two dogs", "a bee in the sun")
SEEDS = [0, 1, 5]
STEPS = 3
FILE = "mine.safetensors"
TRANSFORMER = ("attn", "ff")


@dataclass(frozen=True)
class Case:
    make: Callable[..., Path]
    write: Callable[[Path, Any, Pipeline], Path]
    scale: float  # of layers of the full rank, as it was trained
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"guidance_scale": 3.0})  # of the pipeline's call


def from_peft(write: Callable[..., Path], *parts: str, alpha: float = 2.0, **options: Any) -> Callable[..., Path]:
    def made(file: Path, network: Any, base: Pipeline) -> Path:
        trained_adapters.trained(network, trained_adapters.adaptable(network, *parts), 4, alpha, **options)
        return write(file, network, base)

    return made


def diffusers_file(file: Path, network: Any, base: Pipeline) -> Path:
    kind = getattr(diffusers, base.index["_class_name"])
    return by_diffusers(file, kind, base.denoiser.component, network)


def kohya_file(file: Path, network: Any, base: Pipeline) -> Path:
    return by_kohya(file, factors_of(network))


def sgm_file(file: Path, network: Any, base: Pipeline) -> Path:
    named = factors_of(network).items()
    return by_kohya(file, {in_sgm(name, network.config.layers_per_block): each for name, each in named})


def toolkit_file(start: str, dtype: torch.dtype = torch.float32) -> Callable[..., Path]:
    return lambda file, network, base: by_ai_toolkit(file, factors_of(network), start, dtype)


def fused(*, rank: int = 4, alpha: float = 1.0) -> dict[str, Factors]:
    """Of FLUX.1's own layers, which diffusers' cut up; blocks are 32 wide."""
    shapes = {}
    for block in range(2):
        for stream in ("img", "txt"):
            start = f"double_blocks.{block}.{stream}"
            shapes |= {f"{start}_attn.qkv": (32, 96), f"{start}_attn.proj": (32, 32), f"{start}_mlp.0": (32, 128)}
        shapes[f"single_blocks.{block}.linear2"] = (32 + 128, 32)
    return random_factors(shapes, rank, alpha)


def fused_kohya(file: Path, network: Any, base: Pipeline) -> Path:
    return by_kohya(file, fused())


def fused_xlabs(file: Path, network: Any, base: Pipeline) -> Path:
    """FLUX.1's own layers under xlabs' names."""
    shapes = {"qkv_lora1": (32, 96), "proj_lora1": (32, 32), "qkv_lora2": (32, 96), "proj_lora2": (32, 32)}
    shapes = {f"double_blocks.{block}.processor.{name}": shape for block in range(2) for name, shape in shapes.items()}
    factors = random_factors(shapes, 4, 4.0).items()
    names = {
        f"{name}.{key}.weight": tensor for name, each in factors for key, tensor in (("down", each.a), ("up", each.b))
    }
    save_file(names, file)
    return file


def fused_toolkit(file: Path, network: Any, base: Pipeline) -> Path:
    """FLUX.2's own layers under ai-toolkit's names."""
    shapes = {"double_blocks.0.img_attn.qkv": (32, 96), "double_blocks.1.txt_attn.proj": (32, 32)}
    return by_ai_toolkit(file, random_factors(shapes, 4, 4.0), "diffusion_model")


SD, SDXL = tiny_pipelines.stable_diffusion, tiny_text_pipelines.stable_diffusion_xl
SD3, FLUX, KLEIN = (
    tiny_text_pipelines.stable_diffusion_3,
    tiny_text_pipelines.flux,
    tiny_text_pipelines.flux_2_klein,
)
QWEN, Z_IMAGE, SANA = tiny_text_pipelines_b.qwen_image, tiny_text_pipelines_b.z_image, tiny_text_pipelines_b.sana
TRUE_GUIDANCE = {"true_cfg_scale": 3.0, "negative_prompt": [" "] * 3}
EXACT_SIZE = {"guidance_scale": 3.0, "use_resolution_binning": False}
CASES = {
    "sd diffusers": Case(SD, from_peft(diffusers_file, "attentions", "time_emb_proj"), 0.5),
    "sd rank-stabilised": Case(SD, from_peft(diffusers_file, "attn1", alpha=4.0, use_rslora=True), 2.0),
    "sd kohya": Case(SD, from_peft(kohya_file, "attentions"), 0.5),
    "sd kohya with convolutions": Case(SD, from_peft(kohya_file, "attentions", "resnets", "samplers"), 0.5),
    "sdxl diffusers": Case(SDXL, from_peft(diffusers_file, "attn"), 0.5),
    "sdxl kohya": Case(SDXL, from_peft(sgm_file, "attentions", alpha=1.0), 0.25),
    "sd3 diffusers": Case(SD3, from_peft(diffusers_file, *TRANSFORMER, "proj_out"), 0.5),
    "flux diffusers": Case(FLUX, from_peft(diffusers_file, *TRANSFORMER, "proj_out"), 0.5),
    "flux ai-toolkit": Case(FLUX, from_peft(toolkit_file("transformer"), *TRANSFORMER), 1.0),
    "flux kohya": Case(FLUX, fused_kohya, 0.25),
    "flux xlabs": Case(FLUX, fused_xlabs, 1.0),
    "klein ai-toolkit": Case(KLEIN, fused_toolkit, 1.0),
    "qwen ai-toolkit": Case(QWEN, from_peft(toolkit_file("diffusion_model"), "attn"), 1.0, TRUE_GUIDANCE),
    "qwen kohya": Case(QWEN, from_peft(kohya_file, "attn", alpha=1.0), 0.25, TRUE_GUIDANCE),
    "z-image ai-toolkit": Case(Z_IMAGE, from_peft(toolkit_file("diffusion_model"), "attention"), 1.0),
    "sana diffusers": Case(SANA, from_peft(diffusers_file, "attn"), 0.5, EXACT_SIZE),
}


@dataclass(frozen=True)
class Given:
    case: Case
    base: Pipeline
    file: Path
    model: TextToImageLoRA

    def whole(self, adapter: Path | None) -> Any:
        """The pipeline as its users load it."""
        loaded = diffusers.DiffusionPipeline.from_pretrained(self.base.folder, **self._missing())
        if hasattr(loaded.scheduler, "prk_timesteps"):  # PNDM, of which the own loop's name is another
            loaded.scheduler = diffusers.DDIMScheduler.from_config(loaded.scheduler.config, clip_sample=False)
        loaded.set_progress_bar_config(disable=True)
        if adapter is not None:
            loaded.load_lora_weights(adapter)
        return loaded

    def _missing(self) -> dict[str, Any]:
        return {"safety_checker": None} if "safety_checker" in self.base.index else {}


@pytest.fixture(scope="module", params=CASES)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Given:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("adapter")
    base = Pipeline(case.make(folder / "pipeline"), precision="float32")
    plain = getattr(diffusers, base.denoiser.network).from_pretrained(base.folder / base.denoiser.component)
    file = case.write(folder / FILE, plain, base)
    model = TextToImageLoRA.create(base, read_adapter(file, base), PROMPTS, None, 32, seed=0)
    return Given(case, base, file, model)


@torch.no_grad()
def prediction(given: Given, network: Any) -> Tensor:
    draws, model = torch.Generator().manual_seed(3), given.model
    x = torch.randn(3, *model.shape, generator=draws)
    condition = model.conditioner.embed(PROMPTS, model.pixels)
    time = model.objective.times(torch.tensor([1, 400, 990]))
    told = 3.0 if model.denoiser.embeds_guidance(network) else None
    return model.denoiser.predict(model.denoiser.prepared(network).eval(), x, time, condition, told)


def by_pipeline(whole: Any, arguments: Mapping[str, Any]) -> np.ndarray:
    images = whole(
        prompt=[PROMPTS[seed % 3] for seed in SEEDS],
        height=32,
        width=32,
        num_inference_steps=STEPS,
        generator=[torch.Generator().manual_seed(seed) for seed in SEEDS],
        output_type="np",
        **arguments,
    ).images
    return (images * 255).round()


def test_the_network_is_that_of_load_lora_weights(given: Given) -> None:
    """Bitwise: scales that are powers of two are not rounded."""
    component = given.base.denoiser.component
    theirs, without = (prediction(given, getattr(given.whole(file), component)) for file in (given.file, None))
    ours = prediction(given, given.model.network)
    assert ours.equal(theirs)
    assert (ours - without).abs().max() > 0.01 * without.std()


def test_images_are_those_of_the_pipeline_with_the_file(given: Given) -> None:
    """To one of 255 levels: the own sampling loop sums in another order than the pipeline's."""
    ours = given.model.sample(SEEDS, STEPS, guidance=3.0).astype(float)
    assert np.abs(ours - by_pipeline(given.whole(given.file), given.case.arguments)).max() <= 1
    assert np.abs(ours - by_pipeline(given.whole(None), given.case.arguments)).max() > 5


def test_scales_are_those_of_the_training(given: Given) -> None:
    scaled = {layer.lora_A["default"].weight.shape[0]: layer.scaling["default"] for layer in layers(given.model)}
    full = max(scaled)
    narrow = {full // 2: 2 * given.case.scale} if given.case.scale != 1 and len(scaled) > 1 else {}
    assert scaled == dict.fromkeys(scaled, given.case.scale) | narrow


def layers(model: TextToImageLoRA) -> list[Any]:
    return [layer for layer in model.network.modules() if hasattr(layer, "lora_A")]


def test_what_is_saved_loads_everywhere(given: Given, tmp_path: Path) -> None:
    given.model.save(tmp_path)
    whole = given.whole(tmp_path)
    assert prediction(given, getattr(whole, given.base.denoiser.component)).equal(
        prediction(given, given.model.network)
    )
    again = TextToImageLoRA.load(tmp_path, given.base)
    assert again.fingerprint == given.model.fingerprint
    for one, other in zip(layers(again), layers(given.model), strict=True):
        assert one.scaling == other.scaling
        for factor in ("lora_A", "lora_B"):
            assert getattr(one, factor)["default"].weight.equal(getattr(other, factor)["default"].weight)
    # as a user's own adapter it is the same but for the scales, which files do not have
    reread = read_adapter(tmp_path, given.base)
    assert {name: each.tolist() for name, each in reread.tensors.items()} == {
        name: each.tolist() for name, each in read_adapter(given.file, given.base).tensors.items()
    }
