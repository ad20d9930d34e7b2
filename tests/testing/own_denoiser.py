"""A denoiser as a user writes it, for a pipeline that we do not serve; tests put this file beside a study file."""

from typing import ClassVar

from diffcredit.diffusion.denoisers.base import TextDenoiser


class Mine(TextDenoiser):
    """PixArt-α without the size of the image."""

    network = "PixArtTransformer2DModel"
    pipelines = ("PixArtAlphaPipeline",)
    parts: ClassVar = {"text_encoder": ("T5EncoderModel",), "tokenizer": ("T5Tokenizer",)}
    guidance = 4.5
    loads_adapters = False

    def predict(self, network, x, time, condition, guidance=None):
        sizes = {"resolution": None, "aspect_ratio": None}
        return network(x, timestep=time, added_cond_kwargs=sizes, **condition).sample[:, : x.shape[1]]

    def encode(self, pipeline, text, pixels):
        hidden, mask, _, _ = pipeline.encode_prompt(text, False, device=pipeline.device)
        return {"encoder_hidden_states": hidden[0], "encoder_attention_mask": mask[0]}
