"""The process group that torch.distributed calls."""
