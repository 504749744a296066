"""Loading: both import orders, every failure contained, every reason kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import torchyard_simulated
from torchyard_simulated import DeviceLoadError, LoadState

FreshPython = Callable[..., str]


def test_importing_the_package_does_not_import_torch(fresh_python: FreshPython) -> None:
    program = "import sys, torchyard_simulated; print('torch' in sys.modules)"
    assert fresh_python(program) == "False"


@pytest.mark.sweep
@pytest.mark.parametrize(
    "imports",
    [
        "import torch",
        "import torchyard_simulated; import torch",
        "import torchyard_simulated; torchyard_simulated.load(); import torch",
        "import torch; import torchyard_simulated; torchyard_simulated.load()",
        "import torchyard_simulated.device, torchyard_simulated.runtime; import torch",
    ],
)
def test_the_device_works_after_any_order_of_imports(
    fresh_python: FreshPython, imports: str
) -> None:
    program = f"{imports}; print((torch.ones(2, device='simulated') + 1).tolist())"
    assert fresh_python(program) == "[2.0, 2.0]"


def test_loading_again_changes_nothing() -> None:
    before = torchyard_simulated.status()
    torchyard_simulated.load()
    torchyard_simulated.autoload()
    assert torchyard_simulated.status() is before
    assert before.state is LoadState.LOADED


def test_the_autoload_switch_keeps_the_device_out(fresh_python: FreshPython) -> None:
    program = """
import torch, torchyard_simulated
print(torchyard_simulated.status().state, hasattr(torch, "simulated"))
torchyard_simulated.load()
print(torchyard_simulated.status().state, torch.zeros(1, device="simulated").device)
"""
    printed = fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert printed.splitlines() == ["not loaded False", "loaded simulated:0"]


@pytest.mark.parametrize("named", ["", "vendor"])
def test_a_device_that_nobody_asked_for_changes_nothing(
    fresh_python: FreshPython, named: str
) -> None:
    program = """
import torch, torchyard_simulated
print(torchyard_simulated.status().state, torchyard_simulated.is_asked_for())
print(torch.accelerator.current_accelerator(check_available=True), hasattr(torch, "simulated"))
print(torch._C._get_privateuse1_backend_name())
torchyard_simulated.load()
print(torch.accelerator.current_accelerator(), torchyard_simulated.is_asked_for())
"""
    lines = fresh_python(program, TORCHYARD_PRIVATEUSE1=named).splitlines()
    assert lines == ["not loaded False", "None False", "privateuseone", "simulated True"]


@pytest.mark.sweep
def test_fsdp_on_the_cpu_stays_there_beside_it(fresh_python: FreshPython, tmp_path: Path) -> None:
    program = f"""
import torch
from torch.distributed.fsdp import fully_shard
torch.distributed.init_process_group(
    "gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1
)
model = torch.nn.Linear(4, 4)
fully_shard(model)
model(torch.ones(2, 4)).sum().backward()
print(model.weight.device_mesh.device_type, model.weight.grad.to_local().device)
torch.distributed.destroy_process_group()
"""
    assert fresh_python(program, TORCHYARD_PRIVATEUSE1="").splitlines()[-1] == "cpu cpu"


def test_settings_that_cannot_be_read_leave_torch_alone(
    fresh_python: FreshPython, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("privateuse1 = [")
    program = "import torch; print(hasattr(torch, 'simulated'))"
    script = f"import os; del os.environ['TORCHYARD_PRIVATEUSE1']; {program}"
    assert fresh_python(script, TORCHYARD_CONFIG=str(config)) == "False"


def _copy_of_the_package(folder: Path) -> Path:
    """Copy the installed package, of which an editable install has two parts."""
    copy = folder / "torchyard_simulated"
    for part in torchyard_simulated.__path__:
        shutil.copytree(part, copy, dirs_exist_ok=True)
    return copy


# A copied package is found first, and torch's entry point loads it by its name.
_REPORT = """
import sys
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else {path!r})
sys.meta_path[:] = [f for f in sys.meta_path if "Editable" not in type(f).__name__
                    and "ScikitBuild" not in type(f).__name__]
import torch, torchyard_simulated
assert torchyard_simulated.__file__.startswith({path!r}), torchyard_simulated.__file__
status = torchyard_simulated.status()
print(status.state)
print(status.reason)
print(status.hint)
print(status.traceback.splitlines()[0])
for use in (torchyard_simulated.load, lambda: torch.simulated.device_count()):
    try:
        use()
    except torchyard_simulated.DeviceLoadError as error:
        print(error)
print(torch.ones(2).sum().item())
"""


def _break_library(copy: Path) -> None:
    for library in copy.glob("*torchyard_simulated*.so"):
        library.write_bytes(b"this is no library" * 100)


def _remove_library(copy: Path) -> None:
    for library in copy.glob("*torchyard_simulated*.so"):
        library.unlink()


def _remove_build(copy: Path) -> None:
    (copy / "_build.py").unlink()


def _build_for_another_torch(copy: Path) -> None:
    text = (copy / "_build.py").read_text()
    (copy / "_build.py").write_text(text + 'TORCH_VERSION = "1.2.3+cpu"\n')
    # A library for another torch may do anything once it is loaded, so it must not be.
    _break_library(copy)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_break_library, "OSError"),
        pytest.param(_remove_library, "is missing", marks=pytest.mark.sweep),
        pytest.param(_remove_build, "its library was never built", marks=pytest.mark.sweep),
        (_build_for_another_torch, "it was built for torch 1.2, and this is torch "),
    ],
)
def test_a_broken_install_leaves_torch_usable_and_says_why(
    fresh_python: FreshPython, tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(_copy_of_the_package(tmp_path))
    lines = fresh_python(_REPORT.format(path=str(tmp_path))).splitlines()
    assert lines[0] == "failed"
    assert reason in lines[1]
    assert lines[2]
    assert lines[3] == "Traceback (most recent call last):"
    assert reason in lines[4], "load() must raise the reason"
    assert reason in lines[5], "torch.simulated must raise the reason"
    assert lines[6] == "2.0"


def test_a_slot_with_another_name_is_left_alone(fresh_python: FreshPython) -> None:
    program = """
import torch, torchyard_simulated
torch.utils.rename_privateuse1_backend("vendor")
torchyard_simulated.autoload()
print(torchyard_simulated.status().state, torch._C._get_privateuse1_backend_name())
print(torchyard_simulated.status().reason)
"""
    lines = fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()
    assert lines[0] == "failed vendor"
    assert "taken by another device" in lines[1]


def test_a_slot_with_a_device_and_no_name_is_left_alone(fresh_python: FreshPython) -> None:
    program = """
import torch, torchyard_simulated
torch.ops.load_library(str(torchyard_simulated._loading._built()[1]))
torch.utils.rename_privateuse1_backend("simulated")
torch.ops.torchyard_simulated.initialize()  # another package that brought the same device
torchyard_simulated.autoload()
print(torchyard_simulated.status().state)
print(torchyard_simulated.status().reason)
"""
    lines = fresh_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()
    assert lines[0] == "failed"
    assert "taken by another device" in lines[1]


def test_the_error_names_subject_reason_and_remedy() -> None:
    error = DeviceLoadError("it was built for torch 1.2", "install torch 1.2")
    assert str(error) == (
        "torchyard-simulated: the device is not loaded: it was built for torch 1.2; "
        "install torch 1.2"
    )
