"""Faults planted in a sound plugin, each certified by the command as its author would.

``python -m packages.conformance.tests.laws.planted_faults`` prints what was planted, and the
verdict; ``nox -s rehearsal`` runs it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packages.conformance.tests.mutants.distribution import Distribution, Environment
from torchyard_conformance import Status

__all__ = ["FAULTS", "Fault", "Verdict", "certified", "installed"]

_MANIFEST: Final = """
schema = 1
name = "{plugin}"
summary = "plain attention in float32"
[requires]
torchyard = ">=0.1.0.dev0"
torch = ">=2.11"
[[implements]]
contract = "attention/1"
module = "torchyard_{plugin}.offer"
devices = ["cpu"]
"""
_OFFER: Final = """
import os, time
{at_import}
from torchyard import Implementation, ReasonCode, Verdict, hookimpl

KEPT = []


def supports(request, platform):
    plain = request.score == "none" and request.mask == "none" and not request.page_size
    if request.dtype != "float32" or not plain or request.dropout:
        return Verdict.no(ReasonCode.DTYPE, "plain float32 only", "take another")
    return Verdict.yes()


def load():
    import torch
    from torchyard_attention.contract import AttentionResult

    {at_load}

    def forward(call):
        {in_call}
        group = call.query.shape[1] // call.key.shape[1]
        query = call.query.double()
        key, value = (t.double().repeat_interleave(group, 1) for t in (call.key, call.value))
        scores = (query @ key.mT) * call.scale
        lse = scores.logsumexp(-1).float() if call.lse else None
        greatest = None
        if call.max_scores:
            empty = not scores.shape[-1]
            greatest = scores.new_full(scores.shape[:-1], -torch.inf) if empty else scores.amax(-1)
            greatest = greatest.float()
        return AttentionResult((scores.softmax(-1) @ value).float(), lse, greatest)

    return forward


@hookimpl
def torchyard_implementations(contract):
    return [
        Implementation(contract=contract, name="{plugin}.plain", supports=supports, load=load)
    ]
"""
# At autograd's key of the device, where the component's rules would be: a kernel without any.
_FORGETFUL: Final = """
    from torch.autograd import forward_ad

    def primal(item):
        return forward_ad.unpack_dual(item).primal if isinstance(item, torch.Tensor) else item

    def kernel(*args):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.torchyard_attention.forward.default(*[primal(arg) for arg in args])

    KEPT.append(torch.library.Library("torchyard_attention", "IMPL"))
    KEPT[0].impl("forward", kernel, "AutogradCPU")
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a plugin.

    Attributes:
        plugin: the plugin's name.
        planted: what it does, in words; empty: nothing.
        law: the law that it breaks; empty: none.
        at_import, at_load, in_call: code.
    """

    plugin: str
    planted: str
    law: str
    at_import: str = ""
    at_load: str = ""
    in_call: str = ""

    @property
    def distribution(self) -> Distribution:
        """The plugin, as it is installed."""
        package = f"torchyard_{self.plugin}"
        offer = _OFFER.format(
            plugin=self.plugin,
            at_import=self.at_import,
            at_load=self.at_load.strip() or "pass",
            in_call=self.in_call or "pass",
        )
        manifest = _MANIFEST.format(plugin=self.plugin)
        files = ((f"{package}/torchyard.toml", manifest), (f"{package}/offer.py", offer))
        return Distribution(self.plugin, files, ("torch>=2.11",))


FAULTS: Final = (
    Fault("sound", "", ""),
    Fault(
        "careless",
        "it sets a variable of the environment when it is imported",
        "registration.leaves-process-alone",
        at_import='os.environ["CARELESS"] = "1"',
    ),
    Fault(
        "greedy",
        "it keeps 8 MB of each call",
        "truth.attention-memory-does-not-grow",
        in_call="KEPT.append(torch.empty(2**21))",
    ),
    Fault(
        "sleepy",
        "it sleeps half a second in each call",
        "truth.attention-cost-near-reference",
        in_call="time.sleep(0.5)",
    ),
    Fault(
        "forgetful",
        "it drops the tangents of its inputs",
        "truth.attention-drops-no-tangent",
        at_load=_FORGETFUL,
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a plugin.

    Attributes:
        fault: what was planted.
        certified: whether it was certified.
        broken: each law that it broke, with what was said.
    """

    fault: Fault
    certified: bool
    broken: dict[str, str]

    @property
    def right(self) -> bool:
        """Whether what is sound was certified, and what is not was refused by the law for it."""
        if not self.fault.law:
            return self.certified and not self.broken
        return not self.certified and self.fault.law in self.broken

    @property
    def row(self) -> str:
        """What was planted and the verdict, as a row of Markdown."""
        if self.certified:
            return f"| {self.fault.planted or 'nothing'} | certified |"
        said = " ".join(self.broken.get(self.fault.law, "another law").split())
        return f"| {self.fault.planted} | not certified: `{self.fault.law}`: {said} |"


def certified(fault: Fault, folder: Path) -> Verdict:
    """Certify a plugin quickly, by all laws; its bundle is ``folder/bundle.tgz``."""
    environment = Environment.make(folder / "venv", fault.distribution)
    words = (fault.plugin, "--profile", "smoke", "--bundle", str(folder / "bundle.tgz"))
    status, report = environment.certify(*words)
    assert (status == 0) == report.certified
    broken = {r.law: r.text for r in report.results if r.status is Status.FAIL}
    return Verdict(fault, report.certified, broken)


def installed(fault: Fault, folder: Path) -> Iterator[tuple[str, int, str]]:
    """Change a file of a certified plugin, and verify its bundle in both ways.

    Yields:
        what was asked, the exit status, and the last line of the answer.
    """
    environment = Environment(folder / "venv")
    bundle = str(folder / "bundle.tgz")
    offer = environment.site / f"torchyard_{fault.plugin}" / "offer.py"
    for state in ("the same", "a file changed"):
        for words in ((), ("--installed",)):
            done = environment.run("-m", "torchyard", "certify", "verify", bundle, *words)
            shown = " ".join(["certify verify", *words])
            lines = (done.stdout + done.stderr).strip().splitlines()
            yield f"{state}: `{shown}`", done.returncode, lines[-1] if lines else ""
        offer.write_text(f"{offer.read_text(encoding='utf-8')}\n# Changed.\n", encoding="utf-8")


def main() -> int:
    """Print the table; the exit status is 1 where a fault was certified."""
    print("| planted | verdict |", "| --- | --- |", sep="\n", flush=True)
    wrong = 0
    for fault in FAULTS:
        with tempfile.TemporaryDirectory() as scratch:
            verdict = certified(fault, Path(scratch))
            print(verdict.row, flush=True)
            wrong += not verdict.right
            if not fault.law and verdict.certified:
                for what, status, said in installed(fault, Path(scratch)):
                    print(f"| installed files are {what} | status {status}: {said} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
