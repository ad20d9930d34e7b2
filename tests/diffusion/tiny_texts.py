"""Tokenizers of single letters and tiny text encoders, for the tiny pipelines that take texts."""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from torch import nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    Qwen2Tokenizer,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

LETTERS = [chr(code) for code in range(33, 127)]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CLIP_START, CLIP_END = 2 * len(LETTERS), 2 * len(LETTERS) + 1
T5_WORDS, QWEN_WORDS = 4 + len(LETTERS), 3 + 256


def seeded(make: Any, seed: int, **arguments: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(**arguments).eval()


def louder(model: nn.Module, factor: float = 20) -> Any:
    """``model`` with its matrices scaled, far from the tiny weights of construction, so that texts matter."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(factor)
    return model


def clip_tokenizer(length: int = 16) -> CLIPTokenizer:
    words = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, merges = Path(folder) / "vocab.json", Path(folder) / "merges.txt"
        vocabulary.write_text(json.dumps({word: index for index, word in enumerate(words)}))
        merges.write_text("#version: 0.2\n")
        return CLIPTokenizer(str(vocabulary), str(merges), model_max_length=length)


def clip_encoder(
    seed: int = 0, *, width: int = 12, length: int = 16, projected: int | None = None, factor: float = 20
) -> Any:
    """A CLIPTextModel, or a CLIPTextModelWithProjection to ``projected`` dimensions. Hidden states before the last are
    not normalised: pipelines that take these want a ``factor`` of about 2."""
    config = CLIPTextConfig(
        vocab_size=CLIP_END + 1,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=length,
        projection_dim=projected or width,
        bos_token_id=CLIP_START,
        eos_token_id=CLIP_END,
        pad_token_id=1,
    )
    kind = CLIPTextModel if projected is None else CLIPTextModelWithProjection
    return louder(seeded(kind, seed, config=config), factor)


def t5_tokenizer(length: int = 16) -> T5Tokenizer:
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    vocabulary = special + [(letter, -3.0) for letter in LETTERS]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0, model_max_length=length)


def t5_encoder(seed: int = 0, *, width: int = 16) -> T5EncoderModel:
    config = T5Config(
        vocab_size=T5_WORDS,
        d_model=width,
        d_kv=width // 2,
        d_ff=2 * width,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        pad_token_id=0,
        eos_token_id=1,
    )
    return seeded(T5EncoderModel, seed, config=config)


def qwen_tokenizer(length: int = 512) -> Qwen2Tokenizer:
    """All bytes, one token each, with the marks of a conversation."""
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = [*marks, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    return Qwen2Tokenizer(
        vocab={word: index for index, word in enumerate(words)},
        merges=[],
        model_max_length=length,
        padding_side="right",
        chat_template=CHAT_TEMPLATE,
        additional_special_tokens=marks[1:],
    )
