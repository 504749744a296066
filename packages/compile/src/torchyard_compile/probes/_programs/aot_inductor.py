"""AOTInductor makes a package of an exported model, and loads it."""

import tempfile
from pathlib import Path

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
x = torch.randn(3, 8)
with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    path = str(Path(folder, "model.pt2"))
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    loaded = torch._inductor.aoti_load_package(path)
    torch.testing.assert_close(loaded(x), model(x))
    torch.testing.assert_close(loaded(torch.cat([x, x])), model(torch.cat([x, x])))
