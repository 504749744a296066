"""linear, matmul and bmm: api, op, packed weights, implementations in torch."""
