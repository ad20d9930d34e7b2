"""Pretrained models: folders in the layout of diffusers' ``from_pretrained``, on disk or on the Hugging Face hub.

They are not trusted: weights are read as safetensors, or else by diffusers with ``weights_only=True``, and no code in
the folder is run.
"""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from diffcredit.diffusion.objectives.noise_schedule import NoiseSchedule
from diffcredit.errors import DiffcreditError, UserError, located
from diffcredit.util.artifacts import fingerprint

KINDS = ("UNet2DModel", "DiTTransformer2DModel")  # networks that need no text
WEIGHTS = (".safetensors", ".bin", ".pth")
TEXTS = (".json", ".txt", ".jinja", ".model")  # configs, vocabularies, templates of chats
# Files of a hub model to download: configs, tokenizers and safetensors, not the same weights in other formats.
DOWNLOADED = (
    "*.json",
    "*.txt",
    "*.jinja",
    "*/spiece.model",
    "*/tokenizer.model",
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model-*.safetensors",
    "*/diffusion_pytorch_model.safetensors",
    "*/diffusion_pytorch_model-*.safetensors",
    "*/model.safetensors",
    "*/model-*.safetensors",
)
NOT_DOWNLOADED = ["safety_checker/*"]
Network = TypeVar("Network", bound=nn.Module)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@lru_cache(maxsize=32)
def folder_of(reference: str, downloaded: tuple[str, ...] = DOWNLOADED) -> Path:
    """Return the folder of ``reference``: a path, or a model on the hub, whose files are downloaded once."""
    with suppress(OSError):  # a name that no folder can have
        if (folder := Path(reference).expanduser()).is_dir():
            return folder.resolve()
    if not _HUB_ID.fullmatch(reference):
        raise UserError(f"{reference}: no such folder, and not a hub id such as 'google/ddpm-cifar10-32'")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with quiet():
            return Path(snapshot_download(reference, allow_patterns=list(downloaded), ignore_patterns=NOT_DOWNLOADED))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{reference}: no such folder, and the hub does not give it ({reason}); where the hub can be reached, run "
            f"'hf download {reference} --local-dir FOLDER', and name FOLDER"
        ) from None


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; a folder with a model has it") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: {type(content).__name__}; a JSON object is expected")
    return content


def read_description(directory: Path, family: str, *keys: str) -> list[Any]:
    """Return the values of ``keys`` in the description of a ``family``'s model that was saved in ``directory``."""
    file = directory / "config.json"
    description = read_json(file)
    if missing := [key for key in ("family", *keys) if key not in description]:
        raise UserError(f"{file}: not the description of a saved model; {missing[0]!r} is missing")
    if description["family"] != family:
        raise UserError(f"{file}: family {description['family']!r}; accepted: {family!r}")
    return [description[key] for key in keys]


def check_undamaged(directory: Path, fingerprint: str) -> None:
    """Refuse a model whose ``fingerprint`` is not the one that was saved with it in ``directory``."""
    saved = read_json(directory / "config.json").get("fingerprint", fingerprint)  # older releases saved none
    if saved != fingerprint:
        raise DiffcreditError(
            f"{directory}: damaged: the model is not the one that was saved there; restore the folder from a copy"
        )


def read_weights(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise UserError(f"{file}: no such file; a saved model has it")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise UserError(f"{file}: the saved weights are corrupt ({error})") from None


@lru_cache(maxsize=32)
def weights_fingerprint(folder: Path) -> str:
    """Return the SHA-256 of the configs and weights below ``folder``, by relative path."""
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.suffix in (*TEXTS, *WEIGHTS)):
        digest.update(f"{file.relative_to(folder).as_posix()}\x1f".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def load_pretrained(kind: Any, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Return ``kind.from_pretrained(folder)`` on the CPU in ``dtype`` and eval mode; errors name the folder."""
    # some loaders draw weights first, from the global generator
    with loading(kind, folder), quiet(), torch.random.fork_rng(devices=[]):
        # in its own type first: parts of some models stay in float32
        model, report = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True, torch_dtype=dtype)
    if missing := sorted(report["missing_keys"]):  # they would be random
        raise UserError(f"{folder}: {len(missing)} tensors of {kind.__name__} are missing, such as {missing[0]!r}")
    return model.eval()


def convert(network: Network, dtype: torch.dtype) -> Network:
    """Convert what the files of ``network`` have to ``dtype``, as loading does: tables that no file has stay."""
    for module in network.modules():
        for weight in module._parameters.values():
            if weight is not None and weight.is_floating_point():
                weight.data = weight.data.to(dtype)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point() and name not in module._non_persistent_buffers_set:
                module._buffers[name] = buffer.to(dtype)
    return network


def load_tokenizer(kind: Any, folder: Path) -> Any:
    """Return the tokenizer of class ``kind`` in ``folder``."""
    there = {file.name for file in folder.iterdir()}
    vocabularies = ({"tokenizer.json"}, {"vocab.json", "merges.txt"}, {"spiece.model"}, {"tokenizer.model"})
    if not any(files <= there for files in vocabularies):  # else it would have no vocabulary
        raise UserError(f"{folder}: has neither tokenizer.json nor vocab.json and merges.txt")
    with loading(kind, folder), quiet():
        return kind.from_pretrained(folder, local_files_only=True)


@contextmanager
def loading(kind: Any, folder: Path) -> Generator[None]:
    """Turn any error within the block into a UserError that names the folder."""
    try:
        yield
    except Exception as error:  # diffusers, transformers and safetensors each have their own
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{folder}: {kind.__name__} cannot be loaded from there ({reason})") from error


@contextmanager
def quiet() -> Generator[None]:
    """Silence progress bars and messages of diffusers and transformers within the block."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    names = ("diffusers.utils.logging", "transformers.utils.logging")
    loggings: list[Any] = [sys.modules[name] for name in names if sys.modules.get(name) is not None]
    before = [(logging.get_verbosity(), logging.is_progress_bar_enabled()) for logging in loggings]
    hub_was_silent = are_progress_bars_disabled()  # transformers switches the hub's along with its own
    for logging in loggings:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    try:
        yield
    finally:
        for logging, (verbosity, bars) in zip(loggings, before, strict=True):
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
        (disable_progress_bars if hub_was_silent else enable_progress_bars)()


def read_schedule(folder: Path) -> dict[str, Any]:
    """Return the config of a pipeline's noise schedule, in its folder ``scheduler``."""
    file = folder / "scheduler" / "scheduler_config.json"
    config = read_json(file)
    if "beta_schedule" not in config and config.get("trained_betas") is None:
        raise UserError(
            f"{file}: _class_name {config.get('_class_name')!r} has no betas; accepted: schedulers with beta_start, "
            "beta_end and beta_schedule, such as DDPMScheduler"
        )
    with located(file):
        NoiseSchedule(config)
    return config


@dataclass(frozen=True)
class PretrainedNetwork:
    """A network of diffusers that needs no text: ``folder`` has its config.json and weights, and ``kind`` is its class.
    ``scheduler`` is the config of the noise schedule that it was trained with, if known, and ``labels`` are the names
    of its classes, if a pipeline tells them."""

    folder: Path
    kind: str
    scheduler: Mapping[str, Any] | None
    labels: tuple[str, ...] | None = None

    @classmethod
    def find(cls, reference: str) -> Self:
        """Find it in a pipeline's folder (``unet`` or ``transformer``, and ``scheduler`` below it), or in its own."""
        folder = folder_of(reference)
        own = next((folder / name for name in ("unet", "transformer") if (folder / name).is_dir()), folder)
        kind = read_json(own / "config.json").get("_class_name")
        if kind not in KINDS:
            text = kind == "UNet2DConditionModel" or str(kind).endswith("Transformer2DModel")
            why = "a text-to-image network, see 'family: lora'" if text else "not supported"
            raise UserError(f"{own / 'config.json'}: _class_name {kind!r} is {why}; accepted here: {', '.join(KINDS)}")
        schedule = read_schedule(folder) if (folder / "scheduler").is_dir() else None
        return cls(own, kind, schedule, labels_of(folder))

    @property
    def config(self) -> dict[str, Any]:
        """The network's description."""
        return read_json(self.folder / "config.json")

    @property
    def fingerprint(self) -> str:
        known = [weights_fingerprint(self.folder), self.scheduler and dict(self.scheduler)]
        return fingerprint(known if self.labels is None else [*known, self.labels])

    def load(self, *, channels: int, size: int, resolution: int) -> tuple[nn.Module, dict[str, Any]]:
        """Return the network and its config; refuse one not made for (channels, size, size)."""
        import diffusers

        file, kind = self.folder / "config.json", getattr(diffusers, self.kind)
        config = self.config
        unet = self.kind == "UNet2DModel"
        for key in ("in_channels", "out_channels") if unet else ("in_channels",):
            if config.get(key, 3) != channels:
                variance = config.get("out_channels") == 2 * channels
                raise UserError(
                    f"{file}: {key} {config.get(key)}; {channels} are expected"
                    + (" (a learned variance is not supported)" if variance else "")
                )
        if config.get("sample_size") not in (size, [size, size]):
            trained = config.get("sample_size")
            raise UserError(
                f"contributions.resolution: {resolution} gives the network {size} × {size}, but {file} has sample_size "
                f"{trained}; accepted: {trained * resolution // size if isinstance(trained, int) else 'its own size'}"
            )
        known = inspect.signature(kind.__init__).parameters  # training scripts add other keys
        own = {key: value for key, value in config.items() if key in known}
        fitting = {"sample_size": size, "in_channels": channels} | ({"out_channels": channels} if unet else {})
        return load_pretrained(kind, self.folder), own | fitting


def labels_of(folder: Path) -> tuple[str, ...] | None:
    """Return the names of a pipeline's classes in their order, if its ``model_index.json`` has them (``id2label``)."""
    file = folder / "model_index.json"
    named = read_json(file).get("id2label") if file.is_file() else None
    if not isinstance(named, dict):
        return None
    if sorted(named) != sorted(map(str, range(len(named)))):
        raise UserError(f"{file}: id2label does not number its {len(named)} classes 0 to {len(named) - 1}")
    return tuple(str(named[str(place)]) for place in range(len(named)))
