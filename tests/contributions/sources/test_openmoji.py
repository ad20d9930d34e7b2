import csv
import hashlib

import numpy as np
import pytest

from diffcredit.contributions import load_contributions, with_noise
from diffcredit.contributions.sources.openmoji import BUNDLED


@pytest.fixture(scope="module")
def emoji():
    return load_contributions(source="openmoji", resolution=64)


def metadata(part):
    with (BUNDLED / part / "metadata.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_twelve_designers_of_like_size(emoji):
    assert emoji.n == 12
    assert 35 <= emoji.counts.min() <= emoji.counts.max() <= 70
    assert emoji.heldout.shape == (96, 64, 64, 3)
    held_out = [row["contributor"] for row in metadata("heldout")]
    assert {name: held_out.count(name) for name in held_out} == dict.fromkeys(emoji.contributors, 8)


def test_training_and_held_out_emoji_are_disjoint(emoji):
    assert emoji.duplicates() == []
    digests = [hashlib.sha256(image.tobytes()).digest() for image in (*emoji.images, *emoji.heldout)]
    assert len(set(digests)) == len(digests)
    training, held_out = ({row["hexcode"] for row in metadata(part)} for part in ("images", "heldout"))
    assert not training & held_out


def test_one_skin_tone_an_emoji():
    codes = [code for part in ("images", "heldout") for row in metadata(part) for code in row["hexcode"].split("-")]
    assert not {"1F3FB", "1F3FC", "1F3FD", "1F3FE", "1F3FF"} & set(codes)


def test_man_and_woman_of_one_profession_stay_together():
    sides: dict[str, set[str]] = {}
    for part in ("images", "heldout"):
        for row in metadata(part):
            first, joiner, rest = row["hexcode"].partition("-200D-")
            if joiner and first in ("1F468", "1F469"):
                sides.setdefault(rest, set()).add(part)
    assert sides
    assert all(len(side) == 1 for side in sides.values())


def test_designers_differ_in_colourfulness(emoji):
    """Hasler and Süsstrunk (2003), M = σ_rgyb + 0.3 μ_rgyb, averaged over each designer's images."""
    red, green, blue = np.moveaxis(emoji.images.reshape(len(emoji.images), -1, 3).astype(float), -1, 0)
    rg, yb = red - green, (red + green) / 2 - blue
    colourfulness = np.hypot(rg.std(1), yb.std(1)) + 0.3 * np.hypot(rg.mean(1), yb.mean(1))
    means = {name: colourfulness[emoji.owner == index].mean() for index, name in enumerate(emoji.contributors)}
    assert min(means, key=means.__getitem__) == "Rana Cakir"  # clocks
    assert max(means, key=means.__getitem__) == "Emily Jäger"  # smileys
    assert max(means.values()) > 8 * min(means.values())


def test_a_planted_contributor_stays_out_of_the_held_out_images(emoji):
    assert np.array_equal(with_noise(emoji).heldout, emoji.heldout)


def test_another_column_makes_another_game():
    assert "flags" in load_contributions(source="openmoji", contributor="group").contributors


def test_a_fraction_replaces_the_bundled_held_out_images(emoji):
    split = load_contributions(source="openmoji", holdout=0.25)
    assert len(split.names) + len(split.heldout) == len(emoji.names)


def test_licence_and_attribution_travel_with_the_images(emoji):
    assert "https://creativecommons.org/licenses/by-sa/4.0/legalcode" in (BUNDLED / "LICENSE.txt").read_text()
    attribution = (BUNDLED / "ATTRIBUTION.md").read_text(encoding="utf-8")
    for name in (*emoji.contributors, "https://openmoji.org", "CC BY-SA 4.0", "Changes made"):
        assert name in attribution
    for name, count in zip(emoji.contributors, emoji.counts, strict=True):
        assert any(line.startswith(f"| {name} |") and f"| {count} | 8 |" in line for line in attribution.splitlines())


def test_the_bundle_is_small():
    assert sum(path.stat().st_size for path in BUNDLED.rglob("*") if path.is_file()) < 1_800_000
