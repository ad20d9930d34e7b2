"""Studies that start from an adapter that somebody trained with another program."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from diffcredit.diffusion.generating import generate
from diffcredit.errors import UserError
from diffcredit.execution.threads import limited_threads
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.report.composing import write_results
from diffcredit.study.recorded import check_recorded
from diffcredit.study.study import Study
from diffusion import tiny_pipelines, tiny_text_pipelines, trained_adapters
from tiny_study import files_below, images_of, rows, run_here, write_study

FILE = "mine.safetensors"


def sd_kohya(file: Path, network: Any) -> Path:
    layers = trained_adapters.adaptable(network, "attentions")
    return trained_adapters.by_kohya(
        file, trained_adapters.factors_of(trained_adapters.trained(network, layers, 4, 2.0))
    )


def sdxl_kohya(file: Path, network: Any) -> Path:
    layers = trained_adapters.adaptable(network, "attentions")
    factors = trained_adapters.factors_of(trained_adapters.trained(network, layers, 4, 1.0))
    return trained_adapters.by_kohya(file, {trained_adapters.in_sgm(name, 1): each for name, each in factors.items()})


def sd3_diffusers(file: Path, network: Any) -> Path:
    network = trained_adapters.trained(network, trained_adapters.adaptable(network, "attn", "ff"), 4, 2.0)
    return trained_adapters.by_diffusers(file, diffusers.StableDiffusion3Pipeline, "transformer", network)


def flux_toolkit(file: Path, network: Any) -> Path:
    network = trained_adapters.trained(network, trained_adapters.adaptable(network, "attn"), 4, 4.0)
    return trained_adapters.by_ai_toolkit(file, trained_adapters.factors_of(network), "transformer")


SPARSIFIED = {"method": "sparsified", "steps": 1, "recover_steps": 1}
CASES: dict[str, tuple[Callable[..., Path], Callable[[Path, Any], Path], dict[str, Any]]] = {
    "sd kohya": (tiny_pipelines.stable_diffusion, sd_kohya, SPARSIFIED),
    "sdxl kohya": (tiny_text_pipelines.stable_diffusion_xl, sdxl_kohya, {"method": "fine_tune", "steps": 1}),
    "sd3 diffusers": (tiny_text_pipelines.stable_diffusion_3, sd3_diffusers, SPARSIFIED),
    "flux ai-toolkit": (tiny_text_pipelines.flux, flux_toolkit, {"method": "gradient_ascent", "steps": 1}),
}


def written(folder: Path, case: str, **changes: Any) -> Path:
    make, write, retraining = CASES[case]
    pipeline = make(folder / "pipeline")
    kind = diffusers.DiffusionPipeline.from_pretrained(pipeline, **_unsafe(pipeline))
    write(folder / FILE, getattr(kind, "unet", None) or kind.transformer)
    images_of(folder / "images", ["ada", "bob", "cem"])
    training = {"steps": 2, "batch_size": 4, "learning_rate": 0.01}
    model = {"family": "lora", "pretrained": "pipeline", "adapter": FILE, "prompt": "an icon", "base": "float32"}
    small = {
        "contributions": {"path": "images", "resolution": 16},
        "model": model | {"train": training},
        "retraining": retraining,
        "properties": [{"name": "colourfulness"}],
        "sampling": {"steps": 2, "images": 4, "guidance": 3.0},
        "stop": {"evaluations": 6},
    }
    return write_study(folder, small | changes)


def _unsafe(pipeline: Path) -> dict[str, Any]:
    return {"safety_checker": None} if "safety_checker" in (pipeline / "model_index.json").read_text() else {}


def by_pipeline(study: Study, adapter: Path | None) -> np.ndarray:
    """The study's images as a user of diffusers makes them."""
    folder = study.file.parent / "pipeline"
    pipeline = diffusers.DiffusionPipeline.from_pretrained(folder, **_unsafe(folder))
    pipeline.set_progress_bar_config(disable=True)
    if hasattr(pipeline.scheduler.config, "beta_schedule"):
        pipeline.scheduler = diffusers.DDIMScheduler.from_config(pipeline.scheduler.config, clip_sample=False)
    if adapter is not None:
        pipeline.load_lora_weights(adapter)
    images = pipeline(
        ["an icon"] * 4,
        height=16,
        width=16,
        num_inference_steps=2,
        guidance_scale=3.0,
        generator=[torch.Generator().manual_seed(seed) for seed in study.config.sampling.seeds],
        output_type="np",
    ).images
    return (images * 255).round().astype(np.uint8)


def values_of(study: Study, coalition: str) -> list[float]:
    return [each.measured["colourfulness"] for each in study.evaluations("done") if each.coalition == coalition]


@pytest.mark.filterwarnings("ignore::diffcredit.errors.DiffcreditWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_study_from_its_plan_to_its_report(case, tmp_path):
    file = written(tmp_path, case)
    study = Study.load(file)
    with limited_threads(1):
        plan = study.plan(1)
    assert study.prepared.has_base, "nothing is left to train"
    found = run_here(file)
    assert len(found) == plan.left
    assert [each.status for each in found] == ["done"] * len(found)
    study = Study.load(file)
    nobody, everybody = values_of(study, "000"), values_of(study, "111")
    assert len(nobody) == 1
    assert everybody
    assert not [name for name in files_below(tmp_path / "results" / "models") if name.startswith("base-")]
    ours = study.prepared.generated_images()
    theirs, without = by_pipeline(study, tmp_path / FILE), by_pipeline(study, None)
    assert np.abs(ours.astype(int) - theirs).max() <= 1, "two sampling loops round differently"
    assert np.abs(ours.astype(int) - without).max() > 5
    assert nobody[0] == pytest.approx(Colourfulness().measure(without), rel=0.01)
    ((settings,),) = rows(tmp_path, "SELECT settings FROM recipes")
    assert str(tmp_path) not in str(settings)
    assert '"adapter"' in str(settings)
    write_results(study)
    report = (study.folder / "report.html").read_text(encoding="utf-8")
    assert all(name in report for name in ("ada", "bob", "cem"))
    assert study.credits()["colourfulness"].names == ("ada", "bob", "cem")
    assert run_here(file) == []


@pytest.mark.filterwarnings("ignore::diffcredit.errors.DiffcreditWarning")
def test_the_pipeline_without_it_is_the_reference_beside_house_images(tmp_path):
    """``pretrained`` is what everybody had before, not the adapter that everybody's images made."""
    contributions = {"path": "images", "resolution": 16, "house": ["cem"]}
    file = written(tmp_path, "sd kohya", contributions=contributions, reference="pretrained")
    run_here(file)
    study = Study.load(file)
    (reference,) = [each for each in study.evaluations("done") if each.purpose == "reference"]
    with limited_threads(1):
        base = study.prepared.start()
        images = [generate(model, study.config.sampling, often=True) for model in (base.untrained(7), base)]
    assert np.abs(images[0].astype(int) - by_pipeline(study, None)).max() <= 1
    assert reference.measured["colourfulness"] == Colourfulness().measure(images[0])
    assert reference.measured["colourfulness"] != Colourfulness().measure(images[1])


@pytest.mark.filterwarnings("ignore::diffcredit.errors.DiffcreditWarning")
def test_a_ledger_knows_the_adapter_by_its_content(tmp_path):
    file = written(tmp_path, "sd kohya")
    run_here(file)
    (tmp_path / "moved").mkdir()
    shutil.move(tmp_path / FILE, tmp_path / "moved" / "last.safetensors")
    file.write_text(file.read_text().replace(FILE, "moved"))
    assert run_here(file) == []
    check_recorded(Study.load(file))
    place = tmp_path / "moved" / "last.safetensors"
    tensors = load_file(place)
    save_file({name: tensor * 2 for name, tensor in tensors.items()}, place)
    with pytest.raises(UserError, match=r"model\.adapter"):
        check_recorded(Study.load(file))
    place.unlink()
    with pytest.raises(UserError, match=r"moved: not a safetensors file, and no folder with one"):
        run_here(file)
