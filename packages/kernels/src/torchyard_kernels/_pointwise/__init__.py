"""``foreach_map``: pointwise functions over lists of tensors."""
