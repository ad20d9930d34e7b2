"""Vision models of Hugging Face's transformers: CLIP, BLIP, and any other. Each resizes images as its processor does.

``model`` is a folder or a hub id. Checkpoints come from strangers: weights are read from safetensors alone, and no code
of theirs is run.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from diffcredit.diffusion.pretrained import folder_of, load_tokenizer, loading, quiet, read_json
from diffcredit.errors import UserError, located
from diffcredit.features.base import Images, package
from diffcredit.features.torch_features import NetworkExtractor, as_array, inference
from diffcredit.features.weights import file_hash
from diffcredit.util.artifacts import canonical_json, fingerprint

KEY = "features.model"
SAFE = {"local_files_only": True, "trust_remote_code": False}
# files to download from the hub: descriptions, tokenizers and safe weights, not the weights in other formats
DOWNLOADED = ("*.json", "*.txt", "model.safetensors", "model-*.safetensors")
DESCRIPTIONS = ("config.json", "preprocessor_config.json", "processor_config.json")
WRITERS = ("_name_or_path", "_commit_hash", "transformers_version")
TOKENIZER = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json")
CLASS_TOKENS = ("cls_token", "class_embedding")  # how the models name its parameter


@dataclass(frozen=True)
class Checkpoint:
    """A model of transformers in ``folder``: its config.json, weights, and image processor."""

    folder: Path

    def identity(self) -> dict[str, Any]:
        """Return the hash of the weights, and of the settings of the model and its image processor."""
        hashes = [file_hash(file, KEY) for file in self._weights()]
        settings = {name: self.description(name) for name in DESCRIPTIONS if (self.folder / name).is_file()}
        return {"weights": hashes[0] if len(hashes) == 1 else fingerprint(hashes), "settings": fingerprint(settings)}

    def load(self, kind: Any, optional: str | None = None) -> tuple[Any, bool]:
        """Load the network by transformers' class ``kind``, in float32; say if it has the ``optional`` weights too."""
        self._weights()
        found, wanted = self.description("config.json").get("model_type"), getattr(kind, "config_class", None)
        if wanted is not None and found != wanted.model_type:  # transformers would make a network of random weights
            raise UserError(f"{KEY}: {self.folder}: model_type {found!r}; accepted: {wanted.model_type!r}")
        random_numbers = torch.random.fork_rng(devices=[])  # missing weights are drawn
        with located(KEY), loading(kind, self.folder), quiet(), random_numbers:
            network, report = kind.from_pretrained(self.folder, **SAFE, use_safetensors=True, output_loading_info=True)
        missing = sorted(report["missing_keys"])
        if needed := [name for name in missing if optional is None or not name.startswith(optional)]:
            missed = f"{len(needed)} tensors of {type(network).__name__} are missing, such as {needed[0]!r}"
            raise UserError(f"{KEY}: {self.folder}: {missed}")
        return network.float().eval().requires_grad_(False), not missing

    def image_processor(self) -> Any:
        from transformers import AutoImageProcessor

        # Pillow resizes even if torchvision is installed, which rounds differently; transformers 4 knows only use_fast
        with located(KEY), loading(AutoImageProcessor, self.folder), quiet():
            return AutoImageProcessor.from_pretrained(self.folder, **SAFE, backend="pil", use_fast=False)

    def description(self, name: str) -> dict[str, Any]:
        """Return what a JSON file of the folder says, but for keys that change no number."""
        with located(KEY):
            return {key: value for key, value in read_json(self.folder / name).items() if key not in WRITERS}

    def _weights(self) -> list[Path]:
        """Return the files of weights: one, or its shards."""
        one = self.folder / "model.safetensors"
        files = [one] if one.is_file() else sorted(self.folder.glob("model-*.safetensors"))
        if not files:
            raise UserError(f"{KEY}: {self.folder}: no model.safetensors; other forms of weights are not accepted")
        return files


def resizing(processor: Any) -> str:
    """Describe an image processor, such as ``224 px shortest side, bicubic, antialiased, centre crop 224 × 224``."""
    config, parts = processor.to_dict(), []
    if config.get("do_resize"):
        method = Image.Resampling(config.get("resample", Image.Resampling.BILINEAR)).name.lower()
        parts += [_size(config["size"]), method, "not antialiased" if method == "nearest" else "antialiased"]
        if config.get("crop_pct") is not None:
            parts += [f"centre crop of {config['crop_pct']:g}"]
    if config.get("do_center_crop"):
        parts += [f"centre crop {_size(config['crop_size']).removesuffix(' px')}"]
    return ", ".join(parts) or "none"


def _size(size: Any) -> str:
    match size:
        case {"height": int(height), "width": int(width)}:
            return f"{height} × {width} px"
        case {"shortest_edge": int(edge)}:
            return f"{edge} px shortest side"
    return canonical_json(size)


class _CheckpointExtractor(NetworkExtractor):
    """An extractor of a checkpoint, with its own image processor."""

    model: str

    def _open(self, extractor: str) -> Any:
        transformers = package("transformers", extractor, "vision")
        with located(KEY):
            self._checkpoint = Checkpoint(folder_of(self.model, DOWNLOADED))
        return transformers

    def _use(self, network: Any, device: str, **described: Any) -> None:
        self._processor = self._checkpoint.image_processor()
        identity = {**self._checkpoint.identity(), "resize": resizing(self._processor), **described}
        super()._use(network.to(device), device, **identity)

    def _pixels(self, images: Images) -> Tensor:
        """Preprocess images: (m, h, w, 3) uint8 → (m, 3, height, width) float32."""
        # an image 3 pixels high would otherwise pass for one with its channels first
        given = self._processor(images=list(images), return_tensors="pt", input_data_format="channels_last")
        return given["pixel_values"].to(self._device, torch.float32)


@dataclass
class CLIP(_CheckpointExtractor):
    """The projected embedding of images, not normalised (Radford et al., 2021); texts are in the same space."""

    model: str = "openai/clip-vit-large-patch14"

    @property
    def dimensions(self) -> int:
        return self._network.config.projection_dim

    def load(self, device: str) -> None:
        kind = self._open("clip").CLIPModel
        folder = self._checkpoint.folder
        tokenizer = {name: file_hash(folder / name, KEY) for name in TOKENIZER if (folder / name).is_file()}
        network, _ = self._checkpoint.load(kind)
        self._use(network, device, layer="projected embedding", tokenizer=fingerprint(tokenizer))

    def _forward(self, images: Images) -> tuple[Tensor, None]:
        return _pooled(self._network.get_image_features(self._pixels(images))), None

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return projected embeddings (len(texts), d), not normalised; texts longer than the model takes are cut."""
        from transformers.models.clip import CLIPTokenizer

        with located(KEY):
            tokenizer = load_tokenizer(CLIPTokenizer, self._checkpoint.folder)
        parts = []
        for start in range(0, len(texts), self.batch_size):
            tokens = tokenizer(
                list(texts[start : start + self.batch_size]),
                padding="max_length",
                max_length=self._network.config.text_config.max_position_embeddings,
                truncation=True,
                return_tensors="pt",
            ).to(self._device)
            with inference(self.precision, self._device):
                found = self._network.get_text_features(tokens["input_ids"], tokens["attention_mask"])
            parts.append(as_array(_pooled(found)))
        return np.concatenate(parts)


def _pooled(found: Any) -> Tensor:
    """Return the embeddings (m, d), which transformers 4 returned directly."""
    return getattr(found, "pooler_output", found)


@dataclass(kw_only=True)
class BLIPVQA(_CheckpointExtractor):
    """The pooled output of the image encoder of BLIP (Li et al., 2022), trained to answer questions about images.

    It is the class token after the last layer, normalised twice. ``model`` is one for question answering.
    """

    model: str = "Salesforce/blip-vqa-base"
    batch_size: Annotated[int, Ge(1)] = 16

    @property
    def dimensions(self) -> int:
        return self._network.config.hidden_size

    def load(self, device: str) -> None:
        kind = self._open("blip_vqa").BlipForQuestionAnswering
        network, _ = self._checkpoint.load(kind)
        self._use(network.vision_model, device, layer="pooled output of the image encoder")

    def _forward(self, images: Images) -> tuple[Tensor, None]:
        return self._network(self._pixels(images)).pooler_output, None


@dataclass
class TransformersVision(_CheckpointExtractor):
    """A vision model's summary of an image and, from an image classifier (…ForImageClassification), the logits.

    ``pooling`` chooses the vector:

    - ``cls``: the class token after the last layer;
    - ``mean``: the mean of all tokens or positions after it;
    - ``auto``: the input of a classifier's head; the embedding, where images share a space with texts; or else the
      first there is of the model's pooled output, the class token and the mean.
    """

    model: str
    pooling: Literal["auto", "cls", "mean"] = "auto"

    def load(self, device: str) -> None:
        package = self._open("transformers")
        architectures = self._checkpoint.description("config.json").get("architectures") or [""]
        self._classifies = str(architectures[0]).endswith("ForImageClassification")
        kind = package.AutoModelForImageClassification if self._classifies else package.AutoModel
        # many are published without the pooling that transformers would put on top
        network, self._whole = self._checkpoint.load(kind, optional="pooler.")
        self._use(network, device, pooling=self.pooling)
        self.dimensions = self._tried()

    @property
    def classes(self) -> int | None:
        return self._network.config.num_labels if self._classifies else None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes in the checkpoint's config."""
        if not self._classifies:
            return None
        return tuple(self._network.config.id2label[index] for index in range(self._network.config.num_labels))

    def _forward(self, images: Images) -> tuple[Tensor, Tensor | None]:
        pixels = self._pixels(images)
        return self._classified(pixels) if self._classifies else (self._summary(pixels), None)

    def _summary(self, pixels: Tensor) -> Tensor:
        embed = getattr(self._network, "get_image_features", None)
        found = embed(pixels) if embed is not None else self._network(pixels)
        if self.pooling == "auto":
            pooled = getattr(found, "pooler_output", found if embed is not None else None)
            if pooled is not None and self._whole:
                return pooled.flatten(1)  # convolutional networks have (m, d, 1, 1)
        return self._states(found)

    def _classified(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        if self.pooling != "auto":
            with _calls_of(self._network.base_model) as calls:
                logits = self._network(pixels).logits
            return self._states(calls[0][1]), logits
        head = getattr(self._network, "classifier", None)
        if head is None:
            raise self._refusal("has no head named classifier; accepted: 'cls' and 'mean'")
        with _calls_of(head) as calls:
            logits = self._network(pixels).logits
        return calls[0][0].flatten(1), logits

    def _states(self, found: Any) -> Tensor:
        """Return the class token, or the mean, of the last hidden states (m, tokens, d) or (m, d, h, w)."""
        states = getattr(found, "last_hidden_state", None)
        if states is None:
            raise self._refusal("returns no last hidden states; accepted: 'auto'")
        names = (name for name, _ in self._network.named_parameters())
        has_token = states.ndim == 3 and any(name.endswith(CLASS_TOKENS) for name in names)
        if self.pooling == "cls" and not has_token:
            raise self._refusal("has no class token; accepted: 'auto' and 'mean'")
        if has_token and self.pooling != "mean":
            return states[:, 0]
        return states.mean(dim=1 if states.ndim == 3 else (2, 3))

    def _refusal(self, why: str) -> UserError:
        return UserError(f"features.pooling: {self.pooling!r}; {type(self._network).__name__} {why}")

    def _tried(self) -> int:
        """Extract one image twice, to refuse a model that is no extractor before anything is trained; return d."""
        whose = f"{KEY}: {self._checkpoint.folder}: {type(self._network).__name__}"
        image = np.arange(64 * 64 * 3).reshape(1, 64, 64, 3).astype(np.uint8)
        try:
            first, again = (self.extract(image).vectors for _ in range(2))
        except UserError:
            raise
        except Exception as error:  # each model raises its own error where images alone are not enough
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"{whose} cannot be given images alone ({reason})") from error
        if not np.allclose(first, again, rtol=0, atol=1e-3 * np.abs(first).max()):
            raise UserError(
                f"{whose} has other features for the same image again; models without random draws are accepted"
            )
        return first.shape[1]


@contextmanager
def _calls_of(module: nn.Module) -> Generator[list[tuple[Any, Any]]]:
    """Record what ``module`` is given and returns, each time it is called within the context."""
    seen: list[tuple[Any, Any]] = []
    handle = module.register_forward_hook(lambda _module, given, returned: seen.append((given[0], returned)))
    try:
        yield seen
    finally:
        handle.remove()
