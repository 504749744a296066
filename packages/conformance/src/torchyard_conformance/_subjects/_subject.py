"""The subject: the plugin that is certified, and its implementations."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from torchyard import Implementation, Manifest, Plugin, arguments, registry
from torchyard_conformance._outcome import unverified
from torchyard_conformance._subjects._fresh import Fresh, run_fresh
from torchyard_conformance._subjects._slot import slot_holder

_ANY: Final = "*"
# Where implementations for any device are judged unless another one is asked for.
_EVERYWHERE: Final = "cpu"


class Subject:
    """A plugin under certification, and the part of it that is judged.

    Args:
        name: the plugin's.
        device: judge it on this device type alone; empty: see :attr:`devices`.
        only: judge these implementations alone; empty: all of the plugin's.
        quick: whether laws should try few cases.

    Raises:
        TypeError, ValueError: an argument is of another kind, or the name is empty.
        LookupError: no such plugin is installed; the message lists those that are.
    """

    def __init__(
        self, name: str, *, device: str = "", only: tuple[str, ...] = (), quick: bool = False
    ) -> None:
        of = "Subject"
        self.plugin: Final[Plugin] = registry().plugin(arguments.text(of, "name", name))
        self.only: Final = arguments.sequence(
            of, "only", only, arguments.text, expected="a tuple of names of implementations"
        )
        self.quick: Final = arguments.boolean(of, "quick", quick)
        self._device = _word(of, "device", device)

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.plugin.name

    @property
    def distribution(self) -> str:
        """The distribution that announces the plugin."""
        return self.plugin.source.distribution

    @property
    def version(self) -> str:
        """The distribution's version."""
        return self.plugin.source.version

    @property
    def package(self) -> str:
        """The top-level import package that holds the manifest."""
        return self.plugin.source.value.partition(":")[0].partition(".")[0]

    @property
    def manifest(self) -> Manifest:
        """The manifest; a law that asks for one that cannot be read ends as unverified."""
        if self.plugin.manifest is None:
            unverified(f"its manifest cannot be read: {self.plugin.reason}")
        return self.plugin.manifest

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts that the manifest says it implements, sorted."""
        if self.plugin.manifest is None:
            return ()
        return tuple(sorted({str(entry.contract) for entry in self.plugin.manifest.implements}))

    @property
    def devices(self) -> tuple[str, ...]:
        """The device types that it is judged on, sorted.

        The one asked for; or those of its manifest. One that implements something for any device
        and declares none is judged on the CPU.
        """
        if self._device:
            return (self._device,)
        if self.plugin.manifest is None:
            return ()
        manifest = self.plugin.manifest
        found = {device.name for device in manifest.devices}
        found |= {device for entry in manifest.implements for device in entry.devices}
        if found == {_ANY}:
            return (_EVERYWHERE,)
        return tuple(sorted(found - {_ANY}))

    def implementations(self, contract: str, device: str = "") -> tuple[Implementation, ...]:
        """Return what it offers for a contract; imports the modules that offer it.

        Args:
            contract: ``op/version``; empty where the plugin does not implement it.
            device: for this device type; empty: for any of :attr:`devices`.
        """
        of = "Subject.implementations"
        _word(of, "contract", contract)
        _word(of, "device", device)
        found: dict[str, Implementation] = {}
        for entry in self.manifest.implements:
            if str(entry.contract) != contract:
                continue
            for name in [device] if device else self.devices:
                offered, _ = registry().implementations(entry.contract, name)
                found |= {item.name: item for item in offered if item.plugin == self.name}
        if not self.plugin.usable:
            unverified(f"the plugin is {self.plugin.state}: {self.plugin.reason}")
        return tuple(item for name, item in found.items() if not self.only or name in self.only)

    def absence(self, device: str) -> str:
        """Return why tensors cannot be made on a device type here; empty where they can.

        Imports torch.
        """
        arguments.text("Subject.absence", "device", device)
        if find_spec("torch") is None:
            return "torch is not installed"
        import torch

        assert torch.__version__
        if device in registry().platform.devices:
            return ""
        status = registry().probe_device(device)
        if status.available:
            return ""
        return f"device {device!r}: {status.text}" + (f"; {status.hint}" if status.hint else "")

    def fresh(
        self,
        code: str,
        *,
        settings: Mapping[str, str | None] | None = None,
        timeout: float = 120.0,
    ) -> Fresh:
        """Run code in a fresh interpreter that finds the same plugins.

        It begins as the process did that certifies, before a plugin was imported. A plugin with a
        device on torch's PrivateUse1 slot is given the slot; so is one whose device it computes on.

        Args:
            code: the program.
            settings: variables of the environment to set, or to remove where the value is None.
            timeout: seconds after which it is ended.
        """
        holder = slot_holder(self.plugin)
        mine: dict[str, str | None] = {} if holder is None else {"TORCHYARD_PRIVATEUSE1": holder}
        return run_fresh(["-c", code], settings={**mine, **(settings or {})}, timeout=timeout)


def _word(of: str, name: str, value: object) -> str:
    """Return a string, which may be empty."""
    return arguments.instance(of, name, value, str, "a string")
