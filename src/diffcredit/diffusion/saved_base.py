"""A model that a study trained whole, as the frozen base of another study's adapters."""

from functools import lru_cache
from pathlib import Path

from diffcredit.diffusion.captions import caption_encoder
from diffcredit.diffusion.ddpm import DDPM, LatentDiffusion
from diffcredit.diffusion.first_stage import PIXELS, first_stage
from diffcredit.diffusion.frozen import FrozenBase
from diffcredit.diffusion.objectives import FlowMatching, Objective
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.diffusion.pretrained import folder_of, read_json
from diffcredit.errors import UserError

FAMILIES = {"ddpm": DDPM, "latent": LatentDiffusion}


class SavedBase(FrozenBase):
    """The model in ``folder``, such as ``results/NAME/models/base-…``, which follows labels or captions."""

    def __init__(self, folder: Path, autoencoder: str | None, text_encoder: str | None) -> None:
        description, file = read_json(folder / "config.json"), folder / "config.json"
        if "prompts" not in description:
            raise UserError(f"{file}: a model that follows neither labels nor captions; adapters need one that does")
        if ("autoencoder" in description) != (autoencoder is not None):
            does = "one of latents: model.autoencoder is missing" if autoencoder is None else "one of pixels"
            raise UserError(f"{file}: the base is {does}")
        if ("captions" in description) != (text_encoder is not None):
            does = "captions: model.text_encoder is missing" if text_encoder is None else "labels"
            raise UserError(f"{file}: the base follows {does}")
        stage = PIXELS if autoencoder is None else first_stage(autoencoder)
        captions = None if text_encoder is None else caption_encoder(text_encoder)
        model = FAMILIES[description["family"]].load(folder, stage, captions)
        assert model.conditioner is not None
        self.folder, self.denoiser, self.stage, self.conditioner = folder, model.denoiser, stage, model.conditioner
        self.config, self.guidance, self._objective = model.config, model.guidance, model.objective
        self.fingerprint = model.fingerprint
        self._network = model.network.requires_grad_(False)

    def objective(self, side: int, density: Density | None = None) -> Objective:
        if side != self.config["sample_size"]:
            own = self.config["sample_size"] * self.stage.factor
            raise UserError(f"contributions.resolution: {side * self.stage.factor}; the base was trained with {own}")
        if density is None:
            return self._objective
        if not isinstance(self._objective, FlowMatching):
            raise UserError(f"model.density: {self.folder} has a noise schedule and no density of σ; leave it out")
        return FlowMatching(density, self._objective.shift)


def is_saved(reference: str) -> bool:
    """Return whether ``reference`` is the folder of a model that a study trained whole."""
    file = Path(reference).expanduser() / "config.json"
    return file.is_file() and read_json(file).get("family") in FAMILIES


@lru_cache(maxsize=2)
def saved_base(reference: str, autoencoder: str | None, text_encoder: str | None) -> SavedBase:
    """Return the base in a folder."""
    return SavedBase(folder_of(reference), autoencoder, text_encoder)
