"""Each implementation in a process that nothing of its plugin was in: loaded, then called.

``python -c "from torchyard_conformance._laws.truth._process import observe; observe(...)"`` is the
program. It imports torch and the components once, and forks for every implementation, so that each
begins in the same state and none hides what another changed. An accelerator's runtime does not work
in a forked process: there each implementation has a program of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from torchyard import child_environ
from torchyard_conformance._outcome import NotSupported, Violated
from torchyard_conformance._subjects._subject import Subject
from torchyard_conformance._trials._traces import traces

ATTENTION: Final = ("attention/1", "attention_backward/1")
KERNELS: Final = ("linear/1", "pointwise/1", "recurrent/1", "recurrent_backward/1", "topk/1")

# What torch itself sets when something is compiled for the first time.
_OF_TORCH: Final = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")
_BY_COMPILING: Final = {
    ("calling it", key) for key in ("sys.path", "loggers", "start method of processes")
}
_ENVIRONMENT: Final = "environment variables"
_Call = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]


def observe(
    name: str, implementations: list[tuple[str, str, str]], path: str, *, forked: bool = True
) -> None:
    """Write down what loading and calling each implementation changed.

    Args:
        name: the plugin's.
        implementations: contract, device and implementation of each.
        path: the JSON file: a list of what was changed for each of them; or the reason, as text,
            where it cannot be tried.
        forked: whether each is tried in a forked child; otherwise in this process.
    """
    _import_what_is_not_the_plugins({contract for contract, _, _ in implementations})
    if forked:
        found = [_alone(name, *item, Path(f"{path}.one")) for item in implementations]
    else:
        found = [_outcome(name, *item) for item in implementations]
    Path(path).write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)


def _import_what_is_not_the_plugins(contracts: set[str]) -> None:
    # torch is imported here and not with the module, which lists laws without it.
    from torchyard_conformance._torch_compat import import_what_a_first_call_imports

    import_what_a_first_call_imports()
    if contracts & {*ATTENTION}:
        importlib.import_module("torchyard_conformance._attention._laws")
    if contracts & {*KERNELS} and find_spec("torchyard_kernels") is not None:
        importlib.import_module("torchyard_conformance._kernels._laws")


def _alone(name: str, contract: str, device: str, implementation: str, path: Path) -> Any:
    """Try one implementation in a forked child, and return what it wrote down."""
    if sys.platform == "win32":
        raise OSError("forked: expected False on Windows, which has no fork, got True")
    path.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        path.write_text(
            json.dumps(_outcome(name, contract, device, implementation)), encoding="utf-8"
        )
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not path.is_file():
        return f"the process ended with status {os.waitstatus_to_exitcode(status)}"
    return json.loads(path.read_text(encoding="utf-8"))


def _outcome(name: str, contract: str, device: str, implementation: str) -> list[str] | str:
    """Return what was changed; or the reason, as text, where it cannot be tried."""
    try:
        return _tried(name, contract, device, implementation)
    except (NotSupported, Violated) as error:
        return str(error)
    except BaseException:
        return traceback.format_exc().splitlines()[-1]


def _tried(name: str, contract: str, device: str, implementation: str) -> list[str]:
    """Return what loading and calling an implementation changed, a line each."""
    subject = Subject(name, device=device, only=(implementation,))
    if absence := subject.absence(device):
        raise NotSupported(absence)
    (offered,) = subject.implementations(contract, device)
    prepare, load, call = _steps(contract, device, offered)
    # What the kit does to make a call is not the implementation's doing.
    prepare()
    lines = []
    for step, act in (("loading it", load), ("calling it", call), ("calling it again", call)):
        before, environ = traces(), _environ()
        act()
        after, now = traces(), _environ()
        lines += [
            f"{step} changes {key}: {before[key]} -> {after[key]}"
            for key in before
            if before[key] != after[key]
            and key != _ENVIRONMENT
            and (step, key) not in _BY_COMPILING
        ]
        lines += [
            f"{step} changes the environment variable {key}"
            for key in sorted(environ.keys() | now.keys())
            if environ.get(key) != now.get(key)
        ]
    return lines


def _environ() -> dict[str, str]:
    found = child_environ({})
    return {key: value for key, value in found.items() if not key.startswith(_OF_TORCH)}


def _steps(contract: str, device: str, offered: Any) -> _Call:
    """Return how a call is made ready, how the implementation is loaded, and how it is called."""
    if contract in ATTENTION:
        from torchyard_conformance._attention._judges._outputs import computes
        from torchyard_conformance._attention._judges._resources import accepted
        from torchyard_conformance._attention._kernel import Kernel

        kernel = Kernel(offered, device)
        case = accepted(kernel)
        given: list[Any] = []
        return (
            lambda: given.append(kernel.accept(case)),
            lambda: kernel.function,
            lambda: computes(kernel, case, given[0]),
        )
    from torchyard_conformance._kernels._judges._resources import accepted as first
    from torchyard_conformance._kernels._kernel import Kernel as Op
    from torchyard_conformance._kernels._laws import EVERYTHING

    op = Op(offered, device)
    chosen = first(op, EVERYTHING[contract].values())
    arguments: list[Any] = []
    return (
        lambda: arguments.append(op.accept(chosen)),
        lambda: op.function,
        lambda: op.run(chosen, arguments[0]),
    )


def implementations(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield contract, device and name of each implementation that can be called here."""
    for contract in (*ATTENTION, *KERNELS):
        if contract not in subject.contracts:
            continue
        for device in subject.devices:
            if subject.absence(device):
                continue
            for item in subject.implementations(contract, device):
                yield contract, device, item.name
