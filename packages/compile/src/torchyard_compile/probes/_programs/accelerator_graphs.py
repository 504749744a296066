"""torch.accelerator.Graph captures and replays a function on the accelerator."""

import torch

device = torch.accelerator.current_accelerator(check_available=True)
if device is None:
    raise RuntimeError("no accelerator")
x = torch.zeros(4, device=device)
graph = torch.accelerator.Graph()
with graph:
    y = x + 1
x.fill_(5)
graph.replay()
assert torch.equal(y.cpu(), torch.full((4,), 6.0))
