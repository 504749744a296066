"""What doctor shows of a device in the place of ``mps``, with what torch has for Apple GPUs."""

from __future__ import annotations

from collections import Counter

from plugins.simulated.tests.apple.stand_in import DEVICE, plays_mps
from torchyard import Check, CheckStatus
from torchyard_mps.checks import torchyard_checks
from torchyard_mps.operators import Support, register


def _checks() -> dict[str, Check]:
    return {check.name: check for check in torchyard_checks()}


def test_doctor_tries_the_device_and_names_what_helps() -> None:
    with plays_mps():
        before = _checks()
        with register(DEVICE) as registration:
            after = _checks()
    registered = {one.operator: one for one in registration.replaced if one.registered}
    assert {"ctc_loss", "linalg.svd", "take"} <= set(registered)
    assert before["memory of mps"].text.startswith("torch holds 3.0 GiB of 16.0 GiB")
    for name, one in registered.items():
        where = "on the CPU, with a warning" if one.on_cpu else "on the device"
        assert before[name].status is CheckStatus.WARN
        assert before[name].text.startswith("missing: The operator 'aten::")
        assert before[name].hint == f"torchyard_mps.operators.register() has it computed {where}"
        assert after[name].status is CheckStatus.PASS
        assert after[name].text.startswith("ours, ")
        assert ("bytes copied" in after[name].text) == one.on_cpu
    counts = Counter(one.before.support for one in registration.replaced)
    assert counts[Support.MISSING] == len(registered)
    assert f"{len(registered)} ours" in after["operators on mps"].text
