"""Export models on a device, and run their artifacts in another process.

``python -m packages.export.tests.programs.elsewhere FOLDER`` is that process: it loads the artifact
in the folder, proves it again, and runs it on the calls there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from packages.export.tests.artifact.test_artifact import keys
from packages.export.tests.models.recurrent import Cell, Recurrent
from torchyard_export import export, load

__all__ = ["MODELS", "run_elsewhere"]

_ROOT: Final = Path(__file__).resolve().parents[4]
_FEATURES: Final = 3
# Name -> what makes the model, axes that stay dynamic, shapes of calls.
MODELS: Final[
    Mapping[str, tuple[Callable[[], nn.Module], Mapping[int, str], tuple[tuple[int, ...], ...]]]
] = {
    "lstm": (
        lambda: Recurrent(Cell("LSTM", 2, True, True, False, False, False, "both")),
        {0: "batch:1..5", 1: "time:1..40"},
        ((1, 1, _FEATURES), (2, 40, _FEATURES), (5, 7, _FEATURES)),
    ),
    "linear": (
        lambda: nn.Sequential(nn.Linear(_FEATURES, 16), nn.GELU(), nn.Linear(16, 4)),
        {0: "batch:1..9"},
        ((1, _FEATURES), (9, _FEATURES)),
    ),
}


def run_elsewhere(name: str, target: str, device: str, folder: Path) -> dict[str, Any]:
    """Export a model, and compare what another process computes with float64 on the CPU.

    Args:
        name: one of MODELS.
        target: of export.
        device: torch device type.
        folder: an empty one.

    Returns:
        What the artifact's manifest says of its versions.

    Raises:
        AssertionError: a result is further from float64 than four times the model itself, and than
            what rounding explains.
    """
    make, axes, shapes = MODELS[name]
    torch.manual_seed(5)
    model = make().eval()
    calls = [torch.randn(shape) for shape in shapes]
    wide = make().eval().double()
    wide.load_state_dict({key: item.double() for key, item in model.state_dict().items()})
    with torch.no_grad():
        exact = [_tensors(wide(call.double())) for call in calls]
        model.to(device)
        own = [_tensors(model(call.to(device))) for call in calls]
    (argument,) = ["x"] if name == "lstm" else ["input"]
    artifact = export(
        model, (calls[-1].to(device),), dynamic={argument: axes}, targets=[target], trials=1
    )
    private, _ = keys(folder, "author")
    artifact.save(folder / "model.tya", key=private)
    torch.save([call.to(device) for call in calls], folder / "calls.pt")
    command = (sys.executable, "-m", "packages.export.tests.programs.elsewhere", str(folder))
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = torch.load(folder / "found.pt")
    for mine, theirs, right in zip(found, own, exact, strict=True):
        for value, model_value, truth in zip(mine, theirs, right, strict=True):
            assert value.device.type == torch.device(device).type
            # What the model itself makes of its dtype, or at least the rounding of its sums.
            error = float((model_value.cpu().double() - truth).abs().max())
            least = 64 * torch.finfo(torch.float32).eps * max(1.0, float(truth.abs().max()))
            torch.testing.assert_close(
                value.cpu().double(), truth, atol=max(4 * error, least), rtol=0
            )
    return dict(artifact.manifest.versions)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)]


def _main(folder: Path) -> None:
    artifact = load(folder / "model.tya", key=folder / "author.pub")
    report = artifact.verify()
    if not report.passed:
        raise SystemExit(f"the artifact does not prove itself: {report}")
    calls = torch.load(folder / "calls.pt")
    with torch.no_grad():
        found = [_tensors(artifact(call)) for call in calls]
    torch.save(found, folder / "found.pt")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
