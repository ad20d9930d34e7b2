"""Contributions with a pattern a contributor, so that it is known whose images look like whose, and a tiny model."""

import numpy as np

from diffcredit.contributions import Contributions
from diffcredit.diffusion import networks
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.networks import preset_config

COUNTS = (5, 3, 8, 4)


def contributions(seed=0, size=8):
    """Four contributors: each image is its contributor's random pattern with a little noise."""
    generator = np.random.default_rng(seed)
    patterns = generator.integers(0, 256, (len(COUNTS), size, size, 3))
    owner = np.repeat(np.arange(len(COUNTS)), COUNTS)
    return Contributions(
        images=near(patterns[owner], generator),
        owner=owner,
        contributors=("ada", "bo", "cy", "di"),
        names=tuple(f"{index:02d}" for index in range(len(owner))),
        heldout=np.zeros((0, size, size, 3), dtype=np.uint8),
    )


def near(images, generator):
    """The images with every pixel off by 20 at most."""
    return np.clip(images + generator.integers(-20, 21, images.shape), 0, 255).astype(np.uint8)


def generated(count=6, seed=5, size=8):
    """Images that look like nobody's."""
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def near_copies(given, favourite, count=6):
    """Images that look like those of one contributor."""
    own = given.images[given.owner == favourite]
    return near(own[np.arange(count) % len(own)], np.random.default_rng(9))


def permuted(given, order):
    return Contributions(
        images=given.images[order],
        owner=given.owner[order],
        contributors=given.contributors,
        names=tuple(given.names[index] for index in order),
        heldout=given.heldout,
    )


def tiny_model(seed=0, size=8):
    """An untrained U-Net of one block, with attention in its middle: 11,000 weights."""
    one = {"block_out_channels": (8,), "down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",)}
    config = preset_config("tiny", 3, size, resolution=size) | one | {"attention_head_dim": 8}
    return DDPM(networks.build(config, seed), config)
