"""Print how a million draws of each distribution compare with it, as a table in Markdown."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.progress import track

from plugins.mps.tests.distributions.references import CASES
from plugins.mps.tests.distributions.statistics import draw, moment_distances, probability


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000_000)
    count = parser.parse_args().draws
    print(
        "| distribution | mean | variance | test | probability |\n| --- | --- | --- | --- | --- |"
    )
    for case in track(CASES, "drawing", console=Console(stderr=True)):
        values = draw(case, count)
        distances = [f"{part:.1f}" for part in moment_distances(case, values)]
        moments = " | ".join(distances if case.moments else ["none", "none"])
        test = "Pearson" if case.discrete else "Kolmogorov"
        print(f"| {case.name} | {moments} | {test} | {probability(case, values):.3f} |", flush=True)


if __name__ == "__main__":
    main()
