"""An AOTInductor package: machine code for one kind of machine, stated and checked."""

from __future__ import annotations

import logging
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.export import ExportedProgram

from torchyard.evidence.archives import read_zip
from torchyard.evidence.documents import parse_json
from torchyard_export._artifact.program import import_operators, without_futures
from torchyard_export._finding import FindingKind
from torchyard_export._torch_compat import (
    PACKAGE_LOGGER,
    compile_and_package,
    generates_code,
    load_package,
    takes_processor,
)
from torchyard_export.contract import TargetError
from torchyard_export.targets._device import (
    HOST,
    accelerator_in_use,
    check_device,
    description,
    device_of,
    versions_of,
)
from torchyard_export.targets._int8_kernels import (
    int8_calls,
    int8_layers,
    rounds,
    takes_signed_codes,
)
from torchyard_export.targets._native_calls import PACKAGE_LIMITS, calls_of

__all__ = ["AotInductor", "check_processor", "metadata"]

_FILE: Final = "model.pt2"
_METADATA: Final = re.compile(r"[^/]+/data/aotinductor/model/[^/]+\.wrapper_metadata\.json")


@dataclass(frozen=True, slots=True)
class _Policy:
    """Which processors the code is for.

    Attributes:
        name: as the manifest shows it.
        march: what the compiler may use; None is all that this machine has.
        bits: the width of vectors; None is this machine's widest.
    """

    name: str
    march: str | None = None
    bits: int | None = None


# By platform.machine(): what every server of the last ten years has.
_PORTABLE: Final = {
    "x86_64": _Policy("x86-64-v3", "x86-64-v3", 256),
    "aarch64": _Policy("armv8.2-a", "armv8.2-a", 128),
}
# Every processor of this kind has it.
_BASELINE: Final = frozenset({"NEON"})


class AotInductor:
    """Compile a program; recurrent layers call our ops through AOTInductor's proxy.

    A program with such layers therefore runs in Python, or wherever else the ops are registered.
    """

    native = True

    def __init__(self, *, portable: bool = False) -> None:
        self._portable = portable
        # Of the program that was compiled last: layers that multiply codes, and calls that do.
        self._int8 = (0, 0)
        # What the program that was compiled or loaded last depends on besides.
        self._versions: dict[str, str] = {}

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the package; its metadata names the instruction set that it needs.

        Of a program on an accelerator it names that, its architecture, driver and libraries too.

        Raises:
            TargetError: the compiler refuses, or nothing is known of this kind of machine.
        """
        policy = self._policy()
        options: dict[str, Any] = {"aot_inductor.metadata": self._describe(_device(program))}
        if policy.march is not None:
            options |= {"cpp.march": policy.march, "cpp.simdlen": policy.bits}
        if rounds(program):
            # Products of codes are found once weights are constants; else floats are multiplied.
            options["freezing"] = True
            if takes_signed_codes(program) and _device(program).type == HOST:
                raise TargetError(
                    "expected uint8 activations, which int8 kernels of the CPU take, got int8 ones "
                    "of target 'xpu'; quantize with target='x86', or move the quantized model to "
                    "Intel's GPU and export it there"
                )
        path = folder / _FILE
        try:
            with torch.no_grad(), without_futures():
                # Of torch's own code, for each quantized layer.
                warnings.filterwarnings("ignore", "To copy construct from a tensor")
                compile_and_package(program, package_path=str(path), inductor_configs=options)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            raise TargetError(
                f"AOTInductor refuses: {type(error).__name__}: {lines[0][:300]}"
            ) from error
        files = {_FILE: path.read_bytes()}
        layers = int8_layers(program)
        self._int8 = (layers, int8_calls(files[_FILE]) if layers else 0)
        return files

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the code.

        Raises:
            TargetError: this processor or this accelerator cannot, or there is no such accelerator.
        """
        for calls in calls_of(files[_FILE]):
            import_operators(calls)
        said = metadata(files[_FILE])
        check_processor(said, _capabilities(), platform.machine())
        self._check_device(said)
        path = folder / _FILE
        path.write_bytes(files[_FILE])
        with _unsaid():
            loader: Any = load_package(str(path)).loader

        def run(leaves: Sequence[Any]) -> Sequence[Any]:
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            return list(loader.boxed_run(tensors))

        return run

    def versions(self) -> Mapping[str, str]:
        """Return torch's version, whose library the code needs, and the policy.

        Once something was compiled or loaded for an accelerator: those of its driver, runtime and
        libraries too.
        """
        own = {"torch": torch.__version__, "instruction set": self._policy().name}
        return {**own, **self._versions}

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Return whether quantized layers multiply floats: right, and slower than the model was."""
        layers, calls = self._int8
        if calls < layers:
            text = f"{calls} of {layers} quantized layers have an int8 kernel in the machine code"
            yield FindingKind.FLOAT_KERNELS, text

    def _describe(self, device: torch.device) -> dict[str, str]:
        """Return what the package says of the accelerator; raises TargetError."""
        if device.type == HOST:
            self._versions = {}
            return {}
        if not generates_code(device.type):
            raise TargetError(
                f"expected a device that AOTInductor generates code for, got {device.type!r}; use "
                "the target pt2, which torch's own operators run"
            )
        machine, accelerator = accelerator_in_use(device)
        self._versions = versions_of(accelerator, machine)
        return description(accelerator, machine)

    def _check_device(self, said: Mapping[str, str]) -> None:
        kind = device_of(said)
        self._versions = {}
        if kind != HOST:
            machine, accelerator = accelerator_in_use(torch.device(kind))
            check_device(said, accelerator)
            self._versions = versions_of(accelerator, machine)

    def _policy(self) -> _Policy:
        if not self._portable:
            return _Policy(f"native {platform.machine()}")
        policy = _PORTABLE.get(platform.machine())
        if not takes_processor():
            raise TargetError(
                f"expected a torch whose AOTInductor can be told the processor to compile for, got "
                f"{torch.__version__}; the target aotinductor_native compiles for the machine in "
                "hand"
            )
        if policy is None:
            raise TargetError(
                f"expected a processor of {', '.join(_PORTABLE)}, got {platform.machine()}; the "
                "target aotinductor_native compiles for the machine in hand"
            )
        return policy


def _device(program: ExportedProgram) -> torch.device:
    """Return where a program runs: the accelerator of one of its tensors, or the CPU."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    found = [value.device for value in values if isinstance(value, Tensor)]
    host = torch.device(HOST)
    return next((device for device in found if device.type != HOST), host)


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keep back torch's warning of another instruction set: what matters of it was checked."""
    logger = logging.getLogger(PACKAGE_LOGGER)
    logger.addFilter(_says_more)
    try:
        yield
    finally:
        logger.removeFilter(_says_more)


def _says_more(record: logging.LogRecord) -> bool:
    return "Device information mismatch" not in record.getMessage()


def metadata(data: bytes) -> dict[str, str]:
    """Return what a package says of the machine that it needs.

    Raises:
        TargetError: it is no package.
    """
    try:
        found = read_zip(data, PACKAGE_LIMITS, folders=True, wanted=_METADATA.fullmatch)
        (member,) = found.values()
        said = parse_json(member.content, "metadata")
        return {str(key): str(value) for key, value in said.items()}
    except (ValueError, AttributeError) as error:
        raise TargetError(f"{_FILE}: expected an AOTInductor package: {error}") from error


def check_processor(said: Mapping[str, str], has: frozenset[str], machine: str) -> None:
    """Refuse code that this processor cannot run: it would end the process.

    Args:
        said: the package's metadata.
        has: capabilities of this processor, in torch's words without underscores.
        machine: the kind of this processor.

    Raises:
        TargetError: names what is missing.
    """
    wanted = said.get("AOTI_MACHINE", "")
    if wanted != machine:
        raise TargetError(
            f"expected a processor {wanted!r}, which the code is for, got {machine!r}"
        )
    missing = [
        name
        for name in said.get("AOTI_CPU_ISA", "").split()
        if name not in _BASELINE
        and not any(known.startswith(name.lower().replace("_", "")) for known in has)
    ]
    if missing:
        raise TargetError(
            f"expected a processor with {', '.join(missing)}, which the code uses; the target "
            "aotinductor compiles for more of them"
        )


def _capabilities() -> frozenset[str]:
    known = torch.cpu.get_capabilities()
    return frozenset(str(name).replace("_", "") for name, has in known.items() if has is True)
