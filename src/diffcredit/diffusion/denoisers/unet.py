"""``UNet2DModel``: a U-Net without a condition, or with a class label."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from diffcredit.diffusion.denoisers import checks
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.denoisers.times import in_time_steps


class UNet(Denoiser):
    """A network with labels has an embedding for each class and, where conditions are dropped, one more for none."""

    network = "UNet2DModel"
    component = "unet"

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        return network(x, in_time_steps(time), **dict(condition or {})).sample

    def check_size(self, network: nn.Module, side: int) -> None:
        config: Any = network.config
        checks.check_multiple("this U-Net", side, 2 ** (len(config["block_out_channels"]) - 1))
