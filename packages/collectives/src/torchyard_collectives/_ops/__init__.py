"""The ops as torch.library knows them, with their fake and gradient formulas."""
