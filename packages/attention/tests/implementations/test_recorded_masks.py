"""The grid's masks with programs show what the masks of their names show."""

from __future__ import annotations

import pytest
import torch

from torchyard_attention.cases import MASK_MODS, MASKS, Case
from torchyard_attention.visibility import dense_visibility


@pytest.mark.parametrize("name", MASK_MODS)
@pytest.mark.parametrize("block_size", [(128, 128), (16, 24)])
def test_a_recorded_mask_is_the_one_of_its_name(name: str, block_size: tuple[int, int]) -> None:
    sizes = {"q_length": 150, "kv_length": 170, "block_size": block_size}
    case = Case("", sizes, name, recorded=True)
    call = case.call()
    assert call.mask is not None
    assert call.mask.source is not None
    assert case.request(call).mask_text == call.mask.source.text
    seen = dense_visibility(call.mask, 150, 170)
    assert torch.equal(seen, MASKS[name](2, 4, 150, 170))
