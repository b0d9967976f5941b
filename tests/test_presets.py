"""Presets against what the models' papers print."""

import pytest

from precision.errors import UsageError
from precision.presets import PRESETS, find_preset
from precision.problem import Shape


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_shape(name: str) -> None:
    heads = find_preset(name)
    Shape(1, heads.q_heads, heads.kv_heads, 1, 1, heads.d_k, heads.d_v)


@pytest.mark.parametrize(
    ("name", "hidden", "q_heads", "kv_heads"),
    [
        ("bert-base", 768, 12, 12),
        ("minilm-l6", 384, 12, 12),
        ("llama-3-8b", 4096, 32, 8),
        ("llama-3-70b", 8192, 64, 8),
        ("mistral-7b", 4096, 32, 8),
        ("qwen3-8b", 4096, 32, 8),
    ],
)
def test_head_width_is_hidden_size_over_heads(name: str, hidden: int, q_heads: int, kv_heads: int) -> None:
    heads = find_preset(name)
    assert (heads.q_heads, heads.kv_heads) == (q_heads, kv_heads)
    assert heads.d_k == heads.d_v == hidden / q_heads


@pytest.mark.parametrize(
    ("name", "q_heads", "kv_heads", "d_k", "d_v"),
    [
        ("gemma-7b", 16, 16, 256, 256),
        ("gemma-2b", 8, 1, 256, 256),
        ("deepseek-v3-mla", 128, 128, 128 + 64, 128),
        ("gpt-oss", 64, 8, 64, 64),
    ],
)
def test_models_whose_heads_do_not_fill_the_hidden_size(
    name: str, q_heads: int, kv_heads: int, d_k: int, d_v: int
) -> None:
    heads = find_preset(name)
    assert (heads.q_heads, heads.kv_heads, heads.d_k, heads.d_v) == (q_heads, kv_heads, d_k, d_v)


def test_unknown_preset_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'llama-3-8b' or 'llama-3-70b'"):
        find_preset("llama-3-80b")
