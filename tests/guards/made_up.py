"""Studies whose images and weights follow from integers alone: the same bytes on every machine.

Nothing here imports diffcredit, so that the same studies can be run with another version of it.
"""

import copy
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

NAMES = ("ann", "bob", "cy", "dee", "eve", "flo", "gus", "hal")
SIDE, LATENT_SIDE = 16, 8
TRAIN = {"steps": 2, "batch_size": 8, "learning_rate": 1e-3}
EVERY_TRAIN = {
    "steps": 7,
    "batch_size": 4,
    "learning_rate": 2e-3,
    "schedule": "cosine",
    "gradient_clip": 0.5,
    "flip": False,
    "ema": 0.9,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "warmup_steps": 2,
    "min_snr": 5.0,
    "micro_batch": 2,
    "gradient_checkpointing": True,
    "precision": "float32",
}
FAMILIES: dict[str, dict[str, Any]] = {
    "ddpm": {"preset": "tiny", "train": TRAIN},
    "ddpm with all options": {"family": "ddpm", "preset": "tiny", "train": EVERY_TRAIN},
    "pretrained ddpm": {"family": "ddpm", "pretrained": "ddpm", "train": TRAIN},
    "latent": {"family": "latent", "preset": "tiny", "autoencoder": "text/vae", "train": TRAIN},
    "pretrained latent": {"family": "latent", "pretrained": "latent", "train": TRAIN},
    "text": {"family": "lora", "pretrained": "text", "train": TRAIN},
    "text with a prompt": {"family": "lora", "pretrained": "text", "rank": 4, "prompt": "an icon", "train": TRAIN},
}
SPARSE = {"parameters": 0.5, "multiple": 1, "recover_steps": 1}
EVERY_SPARSE = {"parameters": 4000, "importance": "random", "multiple": 4, "recover_learning_rate": 2e-3} | {
    "recover_steps": 3
}
FINE = {"steps": 3, "batch_size": 4, "learning_rate": 5e-4, "schedule": "linear", "average_tail": None}
LORA = {"rank": 4, "alpha": 8.0, "dropout": 0.0}
RETRAININGS: dict[str, dict[str, Any]] = {
    "from_scratch": {},
    "from_scratch set": {"steps": 3},
    "fine_tune": {},
    "fine_tune set": FINE,
    "sparsified": {},
    "sparsified set": FINE | EVERY_SPARSE,
    "lora": {},
    "lora set": FINE | LORA | {"sparse": EVERY_SPARSE},
    "gradient_ascent": {},
    "gradient_ascent set": {"learning_rate": 1e-4, "steps": 2, "batch_size": 4, "sparse": SPARSE},
    "influence": {},
    "influence set": {"damping": 10.0, "batches": 2, "time_steps": 2, "sparse": SPARSE},
    "soup": {},
    "soup set": FINE,
    "sparse soup": FINE | {"sparse": {}},
    "sparse soup set": FINE | {"sparse": EVERY_SPARSE},
}
CONFIG: dict[str, Any] = {
    "name": "guarded",
    "results": "results",
    "device": "cpu",
    "contributions": {
        "source": "npz",
        "path": "images.npz",
        "contributor": "who",
        "caption": "said",
        "heldout": "out",
        "resolution": SIDE,
    },
    "model": FAMILIES["ddpm"],
    "retraining": {"method": "sparsified", "recover_steps": 2, "steps": 1},
    "sampling": {"steps": 2, "images": 4},
    "properties": [{"name": "colourfulness"}],
    "design": {"full_replicates": 1},
    "stop": {"evaluations": 10},
}


def write_study(folder: Path, **changes: Any) -> Path:
    """``study.yaml`` in ``folder``, with sections of :data:`CONFIG` replaced; what it names lies beside it."""
    if not (folder / "images.npz").exists():
        write_images(folder / "images.npz")
    shutil.copy(Path(__file__).with_name("plugin.py"), folder / "guarded_plugin.py")
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(copy.deepcopy(CONFIG | changes), sort_keys=False), encoding="utf-8")
    return file


def retraining_of(case: str) -> dict[str, Any]:
    """The section of a case of :data:`RETRAININGS`."""
    method = case.removeprefix("sparse ").removesuffix(" set")
    return {"method": method, **RETRAININGS[case]}


def write_images(file: Path) -> None:
    """Two images a contributor, and one that is held out."""
    file.parent.mkdir(parents=True, exist_ok=True)
    i, y, x, c = np.ogrid[: 3 * len(NAMES), :SIDE, :SIDE, :3]
    images = (i * i * 37 + y * (i + 1) * 53 + x * (c + 1) * 29 + x * y * (i + 3) + c * 101) % 256
    who = np.repeat(NAMES, 3)
    said = np.array([f"a {name} {index % 2}" for index, name in enumerate(who)])
    np.savez(file, images=images.astype(np.uint8), who=who, said=said, out=np.arange(len(who)) % 3 == 2)


def write_models(folder: Path) -> None:
    """Folders ``ddpm``, ``latent`` and ``text`` as diffusers reads them, without what its versions add."""
    from diffusers import AutoencoderKL, UNet2DConditionModel, UNet2DModel
    from transformers import CLIPTextConfig, CLIPTextModel

    _write_model(folder / "ddpm/unet", UNet2DModel, _unet(3, SIDE))
    _write_json(folder / "ddpm/scheduler/scheduler_config.json", {"_class_name": "DDPMScheduler"} | _betas("linear"))
    _write_model(folder / "latent/unet", UNet2DModel, _unet(4, LATENT_SIDE))
    for name in ("latent", "text"):
        _write_model(folder / name / "vae", AutoencoderKL, _AUTOENCODER)
    text = folder / "text"
    _write_model(text / "unet", UNet2DConditionModel, _CONDITIONAL)
    schedule = {"_class_name": "PNDMScheduler", "skip_prk_steps": True, "steps_offset": 1, "set_alpha_to_one": False}
    _write_json(text / "scheduler/scheduler_config.json", schedule | _betas("scaled_linear"))
    words = _words()
    tokens = {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1, "pad_token_id": 1}
    config = _TEXT | tokens | {"vocab_size": len(words)}
    encoder = CLIPTextModel(CLIPTextConfig(**config))
    _write_json(
        text / "text_encoder/config.json",
        {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model"} | config,
    )
    _write_weights(text / "text_encoder/model.safetensors", encoder)
    _write_json(text / "tokenizer/vocab.json", {word: index for index, word in enumerate(words)})
    (text / "tokenizer/merges.txt").write_text("#version: 0.2\n")
    _write_json(text / "tokenizer/tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer", "model_max_length": 16})
    _write_json(text / "model_index.json", {"_class_name": "StableDiffusionPipeline"})


def _betas(kind: str) -> dict[str, Any]:
    return {"num_train_timesteps": 100, "beta_start": 0.001, "beta_end": 0.02, "beta_schedule": kind}


def _unet(channels: int, size: int) -> dict[str, Any]:
    return {
        "sample_size": size,
        "in_channels": channels,
        "out_channels": channels,
        "block_out_channels": [8, 16],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
        "attention_head_dim": 8,
    }


_AUTOENCODER = {
    "block_out_channels": [8, 8],
    "norm_num_groups": 4,
    "latent_channels": 4,
    "sample_size": SIDE,
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
}
_CONDITIONAL = _unet(4, LATENT_SIDE) | {
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "cross_attention_dim": 12,
    "attention_head_dim": 4,
}
_TEXT = {
    "hidden_size": 12,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
}


def _words() -> list[str]:
    """Letters alone, within a word and at its end."""
    letters = [chr(code) for code in range(33, 127)]
    return [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]


def _write_model(folder: Path, kind: Any, config: dict[str, Any]) -> None:
    _write_json(folder / "config.json", {"_class_name": kind.__name__, **config})
    _write_weights(folder / "diffusion_pytorch_model.safetensors", kind(**config))


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _write_weights(file: Path, network: torch.nn.Module) -> None:
    """Small fractions of powers of two, by a tensor's place and an element's."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for place, (name, tensor) in enumerate(sorted(network.state_dict().items())):
        count = tensor.numel()
        values = ((np.arange(count) * 37 + place * 11) % 31 - 15).astype("<f4") / 64
        data = values.tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(content), len(content) + len(data)],
        }
        content += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + content)
