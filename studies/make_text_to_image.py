"""Makes a small text-to-image model of emoji and a set of contributions for it, from all of OpenMoji.

    python studies/make_text_to_image.py openmoji_64.npz studies/data/openmoji-text

The .npz holds ``images`` (m, 64, 64, 3) uint8, and m texts each in ``author``, ``hexcode`` and ``group`` (OpenMoji,
CC BY-SA 4.0). The output folder gets ``base``, a Stable Diffusion pipeline in miniature (autoencoder, CLIP text
encoder and U-Net) trained on the emoji of the ten largest designers alone, and ``images``, those of the next forty
with their captions, as Hugging Face's imagefolder: the contributions of ``artbench-small.yaml``. A caption is the
emoji's name in Unicode and its group. Minutes on a GPU, hours without.
"""

import argparse
import json
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

BASE_DESIGNERS, CONTRIBUTORS = 10, 40
JOINERS = {"200D", "FE0F"}
LONGEST = 32  # tokens of a caption
BEGIN, END = "<|startoftext|>", "<|endoftext|>"
BATCH = 512  # a GPU takes as long for fewer
WITHOUT_CAPTION = 0.1  # of the images in training, for classifier-free guidance
SEED = 0


def caption(hexcode: str, group: str) -> str:
    """``grinning face, smileys emotion``; a code point of OpenMoji's own has no name but its group's."""
    names = [unicodedata.name(chr(int(code, 16)), "") for code in hexcode.split("-") if code not in JOINERS]
    return ", ".join(part for part in (" ".join(names).lower().strip(), group.replace("-", " ")) if part)


def designers(authors: NDArray[np.str_]) -> tuple[list[str], list[str]]:
    """The largest by number of emoji, and those after them; equal numbers in the order of the names."""
    ordered = sorted(Counter(authors.tolist()).items(), key=lambda item: (-item[1], item[0]))
    names = [name for name, _ in ordered]
    return names[:BASE_DESIGNERS], names[BASE_DESIGNERS : BASE_DESIGNERS + CONTRIBUTORS]


def write_contributions(folder: Path, images: NDArray[np.uint8], hexcodes, authors, captions) -> None:
    folder.mkdir(parents=True)
    with (folder / "metadata.jsonl").open("w", encoding="utf-8") as file:
        for image, hexcode, author, text in zip(images, hexcodes, authors, captions, strict=True):
            name = f"{hexcode}.png"
            Image.fromarray(image).save(folder / name)
            file.write(json.dumps({"file_name": name, "author": author, "text": text}, ensure_ascii=False) + "\n")


def make_tokenizer(captions: list[str], folder: Path) -> CLIPTokenizer:
    """CLIP's byte-pair encoding, learnt from the captions."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token=END))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    letters = [chr(code) for code in range(33, 127)]
    tokenizer.train_from_iterator(
        captions,
        trainers.BpeTrainer(
            vocab_size=3000, end_of_word_suffix="</w>", special_tokens=[BEGIN, END], initial_alphabet=letters
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = tokenizer.model.save(str(folder))
    return CLIPTokenizer(vocabulary, merges, model_max_length=LONGEST)


def batches(total: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(steps):
        yield torch.randint(total, (BATCH,), generator=generator)


def told(steps: int, what: str) -> Iterator[int]:
    """The steps, and every few seconds how far they are."""
    start = last = time.monotonic()
    for step in range(1, steps + 1):
        yield step
        if time.monotonic() - last > 10 or step == steps:
            last = time.monotonic()
            rate = step / (last - start)
            print(f"{what}: {step}/{steps}, {rate:.1f}/s, {(steps - step) / rate:.0f} s left", flush=True)


def annealed(parameters, rate: float, steps: int) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-4, fused=True)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.05)


def train_autoencoder(pixels: Tensor, steps: int) -> AutoencoderKL:
    """64 × 64 × 3 → 16 × 16 × 4, by absolute and squared error with a little of the variational bound."""
    model = AutoencoderKL(
        block_out_channels=(32, 64, 128),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        latent_channels=4,
        norm_num_groups=16,
        layers_per_block=1,
        sample_size=64,
    ).to(pixels.device)
    optimizer, schedule = annealed(model.parameters(), 1e-3, steps)
    generator = torch.Generator().manual_seed(SEED)
    for _, index in zip(told(steps, "autoencoder"), batches(len(pixels), steps, generator), strict=True):
        x = pixels[index.to(pixels.device)]
        with torch.autocast(pixels.device.type, torch.bfloat16):
            posterior = model.encode(x).latent_dist
            again = model.decode(posterior.sample()).sample.float()
        loss = (again - x).abs().mean() + (again - x).square().mean() + 1e-5 * posterior.kl().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        spread = torch.cat([model.encode(some).latent_dist.mode() for some in pixels.split(256)]).std()
        error = torch.cat([(model(some).sample - some).square().mean((1, 2, 3)) for some in pixels.split(256)])
    model.register_to_config(scaling_factor=1 / spread.item())
    print(f"autoencoder: {10 * np.log10(4 / error.mean().item()):.1f} dB on its own images, latents' sd {spread:.2f}")
    return model


def train_text_to_image(
    latents: Tensor, tokens: Tensor, nothing: Tensor, vocabulary: int, ends: tuple[int, int], steps: int
) -> tuple[UNet2DConditionModel, CLIPTextModel, PNDMScheduler]:
    """The U-Net and its text encoder, trained together on the noise's squared error; averaged weights."""
    device = latents.device
    encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=vocabulary,
            hidden_size=192,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=6,
            max_position_embeddings=LONGEST,
            bos_token_id=ends[0],
            eos_token_id=ends[1],
            pad_token_id=ends[1],
        )
    ).to(device)
    unet = UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(128, 256),
        layers_per_block=1,
        norm_num_groups=32,
        cross_attention_dim=192,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    ).to(device)
    both = nn.ModuleList([unet, encoder])
    average = AveragedModel(both, multi_avg_fn=get_ema_multi_avg_fn(0.995), use_buffers=True)
    schedule = PNDMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        skip_prk_steps=True,
        set_alpha_to_one=False,
        steps_offset=1,
    )
    optimizer, rates = annealed(both.parameters(), 8e-4, steps)
    generator = torch.Generator().manual_seed(SEED)
    for _, index in zip(told(steps, "text-to-image"), batches(len(latents), steps, generator), strict=True):
        x = latents[index.to(device)]
        text = tokens[index.to(device)]
        dropped = torch.rand(BATCH, generator=generator) < WITHOUT_CAPTION
        text = torch.where(dropped.to(device)[:, None], nothing, text)
        noise = torch.randn(x.shape, generator=generator).to(device)
        t = torch.randint(1000, (BATCH,), generator=generator).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            states = encoder(text)[0]
            predicted = unet(schedule.add_noise(x, noise, t), t, encoder_hidden_states=states).sample
        loss = (predicted.float() - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        optimizer.step()
        rates.step()
        average.update_parameters(both)
    trained_unet, trained_encoder = average.module
    return trained_unet.eval(), trained_encoder.eval(), schedule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("npz", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--autoencoder-steps", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=4000)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with np.load(options.npz) as arrays:
        images, authors, hexcodes, groups = (arrays[key] for key in ("images", "author", "hexcode", "group"))
    captions = [caption(hexcode, group) for hexcode, group in zip(hexcodes, groups, strict=True)]
    largest, next_ones = designers(authors)
    ours, theirs = np.isin(authors, largest), np.isin(authors, next_ones)
    counts = f"{ours.sum():,} emoji of {len(largest)} designers for the base"
    print(f"{counts}, {theirs.sum():,} of {len(next_ones)} after them")
    folder = options.output / "images"
    if not folder.exists():
        chosen = np.flatnonzero(theirs)
        texts = [captions[index] for index in chosen]
        write_contributions(folder, images[theirs], hexcodes[theirs].tolist(), authors[theirs].tolist(), texts)

    own = [text for text, mine in zip(captions, ours, strict=True) if mine]
    tokenizer = make_tokenizer(own, options.output / "base" / "tokenizer")
    tokens = tokenizer([*own, ""], padding="max_length", max_length=LONGEST, truncation=True, return_tensors="pt")
    ids = tokens.input_ids.to(device)
    pixels = (torch.from_numpy(images[ours]).permute(0, 3, 1, 2).float() / 127.5 - 1).to(device)
    autoencoder = train_autoencoder(pixels, options.autoencoder_steps)
    with torch.no_grad():
        coded = [autoencoder.encode(some).latent_dist.mode() for some in pixels.split(256)]
    latents = torch.cat(coded) * autoencoder.config.scaling_factor
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    unet, encoder, schedule = train_text_to_image(latents, ids[:-1], ids[-1], len(tokenizer), ends, options.steps)
    pipeline = StableDiffusionPipeline(
        vae=autoencoder,
        text_encoder=encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=schedule,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.to("cpu").save_pretrained(options.output / "base")
    count = sum(parameter.numel() for parameter in unet.parameters())
    print(f"{count:,} parameters in the U-Net; the pipeline is in {options.output}/base")


if __name__ == "__main__":
    main()
