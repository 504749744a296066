"""What the first call with a new function costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from torchyard_attention import flex_attention
from torchyard_attention._mods import _evaluate
from torchyard_attention._mods._evaluate import infer_dtypes, score_inputs
from torchyard_programs import parse
from torchyard_programs._program import inference

_FIRST = """
import sys, torch
from torchyard_attention import create_block_mask, flex_attention

query, key, value = (torch.randn(1, 4, 96, 32) for _ in range(3))
bias, ids = torch.randn(96, 96), torch.arange(96) // 20
mask_mod = lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)
mask = create_block_mask(mask_mod, None, None, 96, 96, "cpu")
flex_attention(query, key, value, lambda s, b, h, q, k: s + bias[q, k] * (q - k), mask)
heavy = [name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules]
print(",".join(heavy) or "none")
"""


def test_a_first_call_imports_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True)
    assert done.stdout.strip() == "none", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        # One by one, of which single elements on the CPU would divide by zero.
        ('["sub",["q","k"],{}]\n["floor_divide",["q","%0"],{}]\n"%1"', torch.int64),
        # An index far beyond the single element that stands for the table.
        ('["mul",["q",1000],{}]\n["getitem",["$0",["%0","k"]],{}]\n"%1"', torch.bfloat16),
        ('["getitem",["$0",["k",-7]],{}]\n["add",["s","%0"],{}]\n"%1"', torch.float32),
    ],
)
def test_dtypes_do_not_depend_on_values(text: str, dtype: torch.dtype) -> None:
    traits = ((torch.bfloat16, 2),)
    dtypes = infer_dtypes(text, torch.float32, traits)

    assert dtypes["%1"] == dtype
    steps = inference.inferred_on(
        parse(text), score_inputs(torch.float32), traits, torch.device("meta")
    )
    assert dtypes == {name: step.dtype for name, step in steps.items()}


def test_new_functions_of_one_structure_are_judged_once() -> None:
    _evaluate._is_pointwise.cache_clear()
    query = torch.randn(1, 2, 8, 4)
    for _ in range(30):
        slopes = torch.rand(2)
        flex_attention(query, query, query, lambda s, b, h, q, k, slopes=slopes: s * slopes[h])

    assert _evaluate._is_pointwise.cache_info().currsize == 1
