"""``UNet2DModel``: a U-Net without a condition, or with a class label."""

from collections.abc import Mapping

from torch import Tensor, nn

from diffcredit.diffusion.denoisers.base import Denoiser


class UNet(Denoiser):
    network = "UNet2DModel"

    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        return network(x, time, **dict(condition or {})).sample
