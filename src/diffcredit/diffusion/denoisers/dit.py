"""DiT: a transformer with a class label, from a pipeline of diffusers or of one's own making."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import PipelineDenoiser
from diffcredit.diffusion.denoisers.times import in_time_steps


class DiT(PipelineDenoiser):
    """The null class, after the last, stands for no label; it is every image's where there is no condition."""

    network = "DiTTransformer2DModel"
    pipelines = ("DiTPipeline",)
    guidance = 4.0
    precision = "float32"
    loads_adapters = False

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        config: Any = network.config
        if condition is None:
            labels = torch.full((len(x),), config["num_embeds_ada_norm"], device=x.device)
        else:
            labels = condition["class_labels"]
        prediction = network(x, timestep=in_time_steps(time), class_labels=labels, return_dict=False)[0]
        return prediction[:, : x.shape[1]]  # without the variance, where it is learned

    def prepared(self, network: nn.Module) -> nn.Module:
        switch_off_label_dropout(network)
        return network

    def check_size(self, network: nn.Module, side: int) -> None:
        config: Any = network.config
        checks.check_multiple("this DiT", side, config["patch_size"])


def switch_off_label_dropout(network: nn.Module) -> None:
    """Make ``network`` keep all labels in training.

    Each block of a DiT replaces labels by the null class at random, with numbers that no seed of ours fixes. The null
    class remains for conditions that are dropped by key.
    """
    from diffusers.models.embeddings import LabelEmbedding

    for module in network.modules():
        if isinstance(module, LabelEmbedding):
            module.dropout_prob = 0.0
