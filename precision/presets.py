"""Attention shapes of real models: query heads, key heads, d_k, d_v.

Each figure is from the model's published config.json (`num_attention_heads`, `num_key_value_heads`, `head_dim`
or `hidden_size / num_attention_heads`); the paper or card that also states it stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from precision.errors import UsageError, nearest


@dataclass(frozen=True)
class Heads:
    """The part of a shape that a model fixes; batch and lengths are the run's choice."""

    q_heads: int
    kv_heads: int
    d_k: int
    d_v: int


PRESETS = {
    # Devlin et al. 2019, section 3: 12 layers, hidden size 768, 12 heads; 768/12 = 64.
    "bert-base": Heads(12, 12, 64, 64),
    # sentence-transformers/all-MiniLM-L6-v2: hidden_size 384, num_attention_heads 12; 384/12 = 32.
    "minilm-l6": Heads(12, 12, 32, 32),
    # Dubey et al. 2024, The Llama 3 Herd of Models, table 3: 32 heads, 8 key/value heads, model dimension 4096.
    "llama-3-8b": Heads(32, 8, 128, 128),
    # The same table: 64 heads, 8 key/value heads, model dimension 8192; 8192/64 = 128.
    "llama-3-70b": Heads(64, 8, 128, 128),
    # Jiang et al. 2023, Mistral 7B, table 1: n_heads 32, n_kv_heads 8, head_dim 128, dim 4096.
    "mistral-7b": Heads(32, 8, 128, 128),
    # Gemma Team 2024, table 1 (7B): 16 heads, 16 key/value heads, head size 256 (d_model 3072 is not 16 x 256).
    "gemma-7b": Heads(16, 16, 256, 256),
    # The same table (2B): 8 heads, 1 key/value head, head size 256.
    "gemma-2b": Heads(8, 1, 256, 256),
    # Qwen/Qwen3-8B: num_attention_heads 32, num_key_value_heads 8, head_dim 128.
    "qwen3-8b": Heads(32, 8, 128, 128),
    # DeepSeek-AI 2024, DeepSeek-V3, section 4.2: 128 heads; query and key 128 + 64 decoupled (RoPE), value 128.
    "deepseek-v3-mla": Heads(128, 128, 192, 128),
    # openai/gpt-oss-20b and -120b: num_attention_heads 64, num_key_value_heads 8, head_dim 64.
    "gpt-oss": Heads(64, 8, 64, 64),
}


def find_preset(name: str) -> Heads:
    """The heads of a model; raises UsageError when it is not among the presets."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}; {nearest(name, PRESETS)}")
    return PRESETS[name]
