"""Tiny text encoders of the Qwen and Gemma families, for the tiny pipelines that take texts."""

from transformers import (
    Gemma2Config,
    Gemma2Model,
    GemmaTokenizer,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3Config,
    Qwen3Model,
)

from .tiny_texts import LETTERS, QWEN_WORDS, louder, seeded

GEMMA_MARKS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
GEMMA_WORDS = len(GEMMA_MARKS) + 1 + len(LETTERS)
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}


def qwen_vl_encoder(seed: int = 0, *, width: int = 16) -> Qwen2_5_VLForConditionalGeneration:
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": QWEN_WORDS,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
            **LAYERS,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_heads": 1,
            "out_hidden_size": width,
            "fullatt_block_indexes": [0],
        },
    )
    return louder(seeded(Qwen2_5_VLForConditionalGeneration, seed, config=config), 5)


def qwen3_encoder(seed: int = 0, *, width: int = 16) -> Qwen3Model:
    config = Qwen3Config(
        vocab_size=QWEN_WORDS, hidden_size=width, intermediate_size=2 * width, head_dim=width // 2, **LAYERS
    )
    return louder(seeded(Qwen3Model, seed, config=config), 5)


def gemma_tokenizer(length: int = 2048) -> GemmaTokenizer:
    """Single letters, with the marks of a text."""
    words = [*GEMMA_MARKS, "▁", *LETTERS]
    return GemmaTokenizer(
        vocab={word: index for index, word in enumerate(words)},
        merges=[],
        model_max_length=length,
        padding_side="right",
    )


def gemma_encoder(seed: int = 0, *, width: int = 16) -> Gemma2Model:
    config = Gemma2Config(
        vocab_size=GEMMA_WORDS,
        hidden_size=width,
        intermediate_size=2 * width,
        head_dim=width // 2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        **LAYERS,
    )
    return louder(seeded(Gemma2Model, seed, config=config), 5)
