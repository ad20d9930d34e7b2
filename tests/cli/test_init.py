"""``diffcredit init``: a study file that the other commands accept."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image

from diffcredit.diffusion.first_stage import first_stage
from diffcredit.study.proposal import propose
from diffcredit.study.study import Study
from diffusion import tiny_pipelines
from tiny_study import CONFIG, changed, images_of


@pytest.mark.parametrize("kind", ["folders", "imagefolder", "npz"])
def test_a_file_that_run_accepts(diffcredit, tmp_path, kind):
    place = images_of(tmp_path / "Bilder von \"Zoë\" & 'Co' #1: 写真", ["ada", "bob"], each=5)
    options = []
    if kind == "imagefolder":
        lines = [{"file_name": f"{who}/{i}.png", "made by": who} for who in ("ada", "bob") for i in range(5)]
        (place / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        options = ["--contributor", "made by"]
    if kind == "npz":
        place = tmp_path / "123.npz"  # whose name is a number to YAML
        images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
        np.savez(place, images=images, contributor=np.array(["ada", "bob"] * 5))
    output = tmp_path / "studies" / "study.yaml"
    lines = diffcredit.printed("init", place, "--output", output, *options).splitlines()
    assert lines[0] == f"{output}: 10 images of 2 contributors (5 to 5 each)"
    assert lines[-1] == f"Next: diffcredit plan {output}, then diffcredit run {output}"
    assert "Reference: the untrained network, so that shares are not shown; --house FOLDER" in lines[2]
    content = yaml.safe_load(output.read_text(encoding="utf-8"))
    assert content["reference"] == "untrained"
    assert content["name"] == ("123" if kind == "npz" else "Bilder-von-Zoë-Co-1-写真")
    assert content["contributions"]["source"] == kind
    output.write_text(output.read_text(encoding="utf-8").replace("# payout:", "payout:"), encoding="utf-8")
    study = Study.load(output)
    assert (study.config.payout.merit, study.config.payout.r) == ("least", "reliability")
    assert (len(study.contributions.images), len(study.contributions.heldout)) == (8, 2)


@pytest.mark.parametrize(
    ("side", "gpu", "preset", "resolution", "said"),
    [
        (128, False, "tiny", 16, "On a GPU, init proposes more"),
        (128, True, "small", 64, "name an autoencoder's folder by --autoencoder"),
        (64, True, "small", 64, "cost about four times as much as 32"),
        (40, True, "small", 32, ""),
    ],
)
def test_pixels_suit_the_images_and_the_machine(side, gpu, preset, resolution, said):
    found = propose(side, gpu=gpu)
    assert (found.preset, found.resolution, found.autoencoder) == (preset, resolution, None)
    assert found.reason.startswith(f"Images are {side} px")
    assert said in found.reason


@pytest.mark.parametrize("layout", ["diffusers", "pipeline", "taesd"])
def test_a_latent_model_where_an_autoencoder_lies_beside(diffcredit, tmp_path, monkeypatch, layout):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    images, beside = images_of(tmp_path / "images", ["ada", "bob"], each=5), tmp_path / "first stage"
    for file in images.rglob("*.png"):
        Image.open(file).resize((70, 80)).save(file)
    tiny = tiny_pipelines.autoencoder_tiny()
    if layout == "taesd":
        beside.mkdir()
        tiny_pipelines.taesd_pair(beside, tiny)
    else:
        tiny.save_pretrained(beside if layout == "diffusers" else beside / "vae")
    file, factor = tmp_path / "study.yaml", first_stage(str(beside)).factor
    out = diffcredit.printed("init", images, "--output", file)
    side = max(latent * factor for latent in (16, 32) if latent * factor <= 70)
    assert f"Proposed: latent-small at {side} px. Images are 70 px; latents of {side // factor} px" in out
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert (content["model"]["family"], content["model"]["autoencoder"]) == ("latent", "first stage")
    monkeypatch.undo()
    study = Study.load(file)
    model = study.prepared.start()
    assert model.shape[1:] == (side // factor, side // factor)
    err = diffcredit.refused("init", images, "--autoencoder", images, "--output", file, "--force")
    assert f"--autoencoder {images}: no autoencoder there; accepted: a folder" in err


def test_house_images_are_the_reference(diffcredit, tmp_path):
    images, file = images_of(tmp_path / "images", ["ada", "bob"], each=5), tmp_path / "studies" / "study.yaml"
    house = images_of(tmp_path / "our own", ["cem"], each=3)
    out = diffcredit.printed("init", images, "--house", house, "--output", file)
    assert "10 images of 2 contributors (5 to 5 each) and 3 house images" in out
    assert "Reference: the model of the house images alone." in out
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert (content["reference"], content["contributions"]["house"]) == ("house", "../our own")
    study = Study.load(file)
    assert (int(study.contributions.house.sum()), study.contributions.contributors) == (3, ("ada", "bob"))


def test_its_pruned_model_is_compared_with_the_base_model(diffcredit, tmp_path):
    """With so few steps that there is nothing to prune yet, which run and report say."""
    file = tmp_path / "study.yaml"
    assert diffcredit("init", images_of(tmp_path / "images", ["ada", "bob"], each=5), "--output", file)[0] == 0
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    few = {
        "device": "cpu",
        "model.preset": "tiny",
        "contributions.resolution": 16,
        "model.train.steps": 2,
        "retraining": {**content["retraining"], "recover_steps": 2, "steps": 1},
        "sampling.images": 20,
        "sampling.steps": 2,
        "stop.evaluations": 6,
        "design": CONFIG["design"],
    }
    file.write_text(yaml.safe_dump(changed(content, few), allow_unicode=True), encoding="utf-8")
    code, out, err = diffcredit("run", file, "--workers", 1, warned=True)
    assert code == 0
    assert "The pruned model, before any coalition" in out
    said = "the base model is hardly trained: its denoising loss is "
    assert err.count(said) == 1
    assert "pruning changed" not in err
    assert said in (tmp_path / "results/images/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["123", "true", "2024-01-01", "...", "- -", "x" * 200, "v1.2"])
def test_any_folder_name(diffcredit, tmp_path, name):
    images_of(tmp_path / name, ["ada", "bob"], each=1)
    file = tmp_path / "study.yaml"
    assert diffcredit("init", tmp_path / name, "--output", file)[0] == 0
    assert diffcredit("status", file)[0] == 0
    assert "heldout_loss" not in file.read_text()  # one image each: nobody can spare one


def test_nothing_is_overwritten_unasked(diffcredit, tmp_path):
    images_of(tmp_path / "images", ["ada", "bob"], each=1)
    file = tmp_path / "study.yaml"
    file.write_text("mine")
    code, _, err = diffcredit("init", tmp_path / "images", "--output", file)
    assert (code, file.read_text()) == (2, "mine")
    assert err == f"error: {file}: exists already; choose another --output, or --force to overwrite it\n"
    assert diffcredit("init", tmp_path / "images", "--output", file, "--force")[0] == 0
    assert file.read_text().startswith("# A study")


@pytest.mark.parametrize(("name", "said"), [("nowhere", "does not exist"), ("empty", "no images there")])
def test_nothing_to_begin_with(diffcredit, tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    err = diffcredit.refused("init", tmp_path / name, "--output", tmp_path / "study.yaml")
    assert err == f"error: {tmp_path / name}: {said}\n"
    assert not (tmp_path / "study.yaml").exists()


def test_what_cannot_be_read_is_named(diffcredit, tmp_path):
    images_of(tmp_path / "images", ["ada", "bob"], each=2)
    (tmp_path / "images/ada/0.png").write_bytes(b"not a picture")
    out = diffcredit.printed("init", tmp_path / "images", "--output", tmp_path / "study.yaml")
    assert "unreadable: ada/0.png: " in out
    err = diffcredit.refused("run", tmp_path / "study.yaml")
    assert "ada/0.png" in err
    assert "unreadable: skip" in err
