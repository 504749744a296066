"""OpenVINO's products with weights of 8 and 4 bits, in a process and an environment of its own.

``python -m benchmarks.quantised.openvino_products WEIGHT BITS GROUP ACTIVATION COPIES THREADS``
reads commands from its input, one a line, and answers each with a line of JSON. It needs openvino
and numpy alone. WEIGHT is a file of numpy: float32 [N, N].
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.quantised.openvino_weights import matrix

__all__ = ["answer_commands"]


def _compiled(weight: Any, options: dict[str, int]) -> tuple[Any, int]:
    """Return a chain of products with copies of a weight, and the bytes of one."""
    ov: Any = importlib.import_module("openvino")
    ops: Any = importlib.import_module("openvino.opset13")

    x = y = ops.parameter([options["rows"], weight.shape[1]], ov.Type.f32)
    held = 0
    for _ in range(options["copies"]):
        node, held = matrix(weight, options["bits"], options["group"])
        y = ops.matmul(y, node, False, True)
    settings = {
        "INFERENCE_NUM_THREADS": options["threads"],
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16",
        # Of x; 0 leaves it as it is.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32 if options["activation"] else 0,
    }
    return ov.Core().compile_model(ov.Model([y], [x]), "CPU", settings), held


def answer_commands(path: Path, options: dict[str, int]) -> None:
    """Answer commands until there are no more.

    ``rows M``: be ready for that many, answering the bytes of a weight; ``check X OUT``: one
    product, from a file to a file; ``time X``: the seconds of one product, of a chain of them.

    Args:
        path: of the weight.
        options: bits, group, activation, copies, threads.
    """
    import numpy as np

    weight = np.load(path)
    one = many = None
    for line in sys.stdin:
        command, *words = line.split()
        answer: float = 0
        if command == "rows":
            asked = {**options, "rows": int(words[0])}
            many, answer = _compiled(weight, asked)
            one, _ = _compiled(weight, {**asked, "copies": 1})
        elif command == "check" and one is not None:
            np.save(words[1], one(np.load(words[0]))[0])
        elif many is not None:
            x = np.load(words[0])
            start = time.perf_counter()
            many(x)
            answer = (time.perf_counter() - start) / options["copies"]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _names = ("bits", "group", "activation", "copies", "threads")
    answer_commands(Path(sys.argv[1]), dict(zip(_names, map(int, sys.argv[2:7]), strict=True)))
