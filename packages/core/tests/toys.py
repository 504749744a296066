"""A toy component and a toy plugin that work, as distributions."""

from __future__ import annotations

from .distribution import Distribution

TOY = Distribution(
    "torchyard-toy",
    "toy",
    "torchyard_toy",
    {
        "torchyard_toy/torchyard.toml": """
            schema = 1
            name = "toy"
            summary = "adds one"
            [requires]
            torchyard = ">=0.1.0.dev0"
            [[defines]]
            contract = "toy/1"
            module = "torchyard_toy.contract"
            [[implements]]
            contract = "toy/1"
            module = "torchyard_toy.reference"
            devices = ["*"]
            [[commands]]
            name = "toy"
            target = "torchyard_toy.command:command"
            help = "Add one."
            [order."toy/1"]
            "*" = ["good.fast", "toy.reference"]
        """,
        "torchyard_toy/contract.py": """
            from dataclasses import dataclass

            from torchyard import ContractDefinition, RequestField


            @dataclass(frozen=True, slots=True)
            class ToyRequest:
                device: str = "cpu"
                dtype: str = "float32"
                size: int = 1

                def bucket(self) -> str:
                    return f"{self.device} {self.dtype} {'large' if self.size > 8 else 'small'}"


            def parse(fields):
                size = fields["shape"]
                if not size.isdigit():
                    raise ValueError(f"shape: expected a number, got {size!r}")
                return ToyRequest(fields["device"], fields["dtype"], int(size))


            def cases(device):
                for dtype in ("float32", "float64"):
                    for size in (1, 16):
                        yield ToyRequest(device, dtype, size)


            DEFINITIONS = {
                "toy/1": ContractDefinition(
                    contract="toy/1",
                    summary="adds one",
                    fields=(
                        RequestField("device", "torch device type", "cpu"),
                        RequestField("dtype", "float32 or float64", "float32"),
                        RequestField("shape", "how many numbers", "1"),
                    ),
                    parse=parse,
                    cases=cases,
                )
            }
        """,
        "torchyard_toy/reference.py": """
            from torchyard import Implementation, Verdict, hookimpl


            @hookimpl
            def torchyard_implementations(contract):
                return [
                    Implementation(
                        contract=contract,
                        name="toy.reference",
                        supports=lambda request, platform: Verdict.yes(),
                        load=lambda: lambda numbers: [number + 1 for number in numbers],
                    )
                ]
        """,
        "torchyard_toy/command.py": """
            import click


            @click.command()
            @click.argument("number", type=int)
            def command(number):
                click.echo(number + 1)
        """,
    },
)

GOOD = Distribution(
    "torchyard-good",
    "good",
    "torchyard_good",
    {
        "torchyard_good/torchyard.toml": """
            schema = 1
            name = "good"
            summary = "adds one, fast, in float32"
            [requires]
            torchyard = ">=0.1.0.dev0"
            [[implements]]
            contract = "toy/1"
            module = "torchyard_good.toy"
            devices = ["cpu"]
            [doctor]
            module = "torchyard_good.checks"
        """,
        "torchyard_good/toy.py": """
            from torchyard import Implementation, ReasonCode, Verdict, hookimpl


            def supports(request, platform):
                if request.dtype != "float32":
                    return Verdict.no(
                        ReasonCode.DTYPE, f"float32 only, got {request.dtype}", "convert first"
                    )
                return Verdict.yes()


            @hookimpl
            def torchyard_implementations(contract):
                return [
                    Implementation(
                        contract=contract,
                        name="good.fast",
                        supports=supports,
                        load=lambda: lambda numbers: [1 + number for number in numbers],
                    )
                ]
        """,
        "torchyard_good/checks.py": """
            from torchyard import Check, CheckStatus, hookimpl


            @hookimpl
            def torchyard_checks():
                return [Check("speed", CheckStatus.PASS, "as fast as ever")]
        """,
    },
)
