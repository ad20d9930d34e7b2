"""Trains the study's classifier on the training split of cifar20.npz, and says how well it does on the test split.

python studies/cifar20-h200/train_classifier.py studies/data/cifar20.npz
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from classifier import CLASSES, WEIGHTS, Network
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F


def moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each of the images (m, 3, h, w) mirrored or not, and moved by up to four pixels; edges are repeated."""
    m, _, height, width = images.shape
    padded = F.pad(images, (4, 4, 4, 4), mode="replicate")
    down, right = (torch.randint(0, 9, (m,), generator=generator, device=images.device) for _ in range(2))
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    flip = torch.rand(m, generator=generator, device=images.device) < 0.5
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    places = torch.arange(m, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[places, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train(images: Tensor, labels: Tensor, epochs: int, batch: int, seed: int) -> Network:
    """With SGD, Nesterov's momentum, a rate that rises and falls, smoothed labels, and the average of the last
    quarter's weights."""
    torch.manual_seed(seed)
    device = images.device
    generator = torch.Generator(device).manual_seed(seed)
    network = Network().to(device, memory_format=torch.channels_last)
    steps = epochs * (len(images) // batch)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps, pct_start=0.2)
    average = torch.optim.swa_utils.AveragedModel(network, avg_fn=_mean, use_buffers=True)
    for step in range(steps):
        if step % (len(images) // batch) == 0:
            order = torch.randperm(len(images), generator=generator, device=device)
        chosen = order[(step % (len(images) // batch)) * batch :][:batch]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            _, logits = network(moved(images[chosen], generator).contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits.float(), labels[chosen], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step >= 0.75 * steps:
            average.update_parameters(network)
    return average.module.eval()


def _mean(mean: Tensor, new: Tensor, count: Tensor | int) -> Tensor:
    """Of ``count`` tensors and a new one. Norms count in whole numbers, which torch's own does not divide on a GPU."""
    return mean + (new - mean) / (count + 1)


@torch.no_grad()
def confusion(network: Network, images: Tensor, labels: Tensor) -> Tensor:
    """How many images of each class (row) are taken for each (column)."""
    found = torch.cat([network(some)[1].argmax(1) for some in images.split(500)])
    return torch.bincount(labels * CLASSES + found, minlength=CLASSES**2).reshape(CLASSES, CLASSES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with np.load(options.data) as arrays:
        images = torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2).to(device).float() / 255
        labels, test = torch.from_numpy(arrays["labels"]).to(device), torch.from_numpy(arrays["split"] == 1).to(device)
        names = [str(name) for name in arrays["class_names"]]
    network = train(images[~test], labels[~test], options.epochs, options.batch, options.seed)
    table = confusion(network, images[test], labels[test])
    recalled = (table.diagonal() / table.sum(1)).tolist()
    print(f"accuracy on {int(test.sum()):,} test images: {table.diagonal().sum() / table.sum():.3f}")
    save_file({name: weight.half().contiguous() for name, weight in network.state_dict().items()}, WEIGHTS)
    each = {name: round(share, 4) for name, share in zip(names, recalled, strict=True)}
    found = {"accuracy": round(sum(recalled) / CLASSES, 4), "of each class": each}
    WEIGHTS.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
