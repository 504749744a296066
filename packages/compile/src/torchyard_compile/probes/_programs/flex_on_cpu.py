"""flex_attention, compiled, computes a masked call and its gradients on the CPU."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

query, key, value = (torch.randn(1, 2, 128, 32, requires_grad=True) for _ in range(3))
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cpu")
found = torch.compile(flex_attention)(query, key, value, block_mask=mask)
expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
found.sum().backward()
given = query.grad.clone()
query.grad = None
expected.sum().backward()
torch.testing.assert_close(given, query.grad, rtol=1e-3, atol=1e-4)
