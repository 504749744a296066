"""The contestants of benchmarks.language that are OpenVINO's, in a process of their own.

``python -m benchmarks.language.openvino TYPE LAYERS THREADS WEIGHTS LOGITS`` reads weights from a
folder that the exact contestant wrote, and answers commands as benchmarks.language.model does. It
needs openvino and numpy alone.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.language.shape import CHECKED, SHAPE
from benchmarks.quantised.openvino_weights import matrix

__all__ = ["answer_commands"]

# Type -> bits of a weight, neighbours that share a scale.
_TYPES: Final = {"BF16": (16, 0), "INT8": (8, 0), "INT4": (4, 32)}
_EPSILON: Final = 1e-6
_THETA: Final = 10000.0
_HEADS: Final = SHAPE["num_attention_heads"]
_GROUPS: Final = SHAPE["num_key_value_heads"]
_SIZE: Final = SHAPE["head_dim"]


class _Network:
    """The graph of the model: tokens, positions, rows to keep and beams in, logits out.

    Keys and values are its state, written as OpenVINO's own exporter does, so that its CPU plugin
    computes attention by the operator that appends to its cache.
    """

    def __init__(self, folder: Path, kind: str, layers: int) -> None:
        self.folder, self.kind = folder, kind
        self.weight_bytes = self.products = 0
        self._ov: Any = importlib.import_module("openvino")
        self._ops: Any = importlib.import_module("openvino.opset13")
        self._sinks: list[Any] = []
        ov, ops = self._ov, self._ops
        tokens = ops.parameter([1, -1], ov.Type.i64, name="tokens")
        positions = ops.parameter([1, -1], ov.Type.i64, name="positions")
        kept = ops.parameter([-1], ov.Type.i64, name="kept")
        self._beams = ops.parameter([-1], ov.Type.i32, name="beams")
        self._cos, self._sin = self._rotation(positions)
        table, _ = matrix(self._weight("model.embed_tokens"), 16, 0)
        x = ops.gather(table, tokens, ops.constant(0))
        for layer in range(layers):
            x = self._layer(x, layer)
        x = ops.gather(self._normed(x, "model.norm"), kept, ops.constant(1))
        logits = self._linear(x, "lm_head")
        self.model = ov.Model(
            [ops.result(logits)], self._sinks, [tokens, positions, kept, self._beams]
        )

    def _weight(self, name: str) -> Any:
        import numpy as np

        return np.load(self.folder / f"{name}.weight.npy")

    def _linear(self, x: Any, name: str) -> Any:
        weight = self._weight(name)
        node, held = matrix(weight, *_TYPES[self.kind])
        self.weight_bytes += held
        self.products += weight.size
        return self._ops.matmul(x, node, False, True)

    def _normed(self, x: Any, name: str) -> Any:
        import numpy as np

        ops = self._ops
        mean = ops.reduce_mean(ops.power(x, np.float32(2)), np.array([-1]), True)
        scale = ops.divide(np.float32(1), ops.sqrt(ops.add(mean, np.float32(_EPSILON))))
        return ops.multiply(ops.multiply(x, scale), self._weight(name).astype(np.float32))

    def _rotation(self, positions: Any) -> tuple[Any, Any]:
        """Return cosines and sines, [1, 1, L, D]."""
        import numpy as np

        ov, ops = self._ov, self._ops
        rates = _THETA ** -(np.arange(0, _SIZE, 2, dtype=np.float32) / _SIZE)
        columns = ops.unsqueeze(ops.convert(positions, ov.Type.f32), np.array([1, 3]))
        angles = ops.multiply(columns, rates.reshape(1, 1, 1, -1))
        angles = ops.concat([angles, angles], -1)
        return ops.cos(angles), ops.sin(angles)

    def _rotated(self, x: Any) -> Any:
        """Return x [1, H, L, D], its halves turned by the position."""
        import numpy as np

        ops = self._ops
        halves = ops.variadic_split(x, np.int64(3), np.array([_SIZE // 2, _SIZE // 2]))
        turned = ops.concat([ops.multiply(halves.output(1), np.float32(-1)), halves.output(0)], -1)
        return ops.add(ops.multiply(x, self._cos), ops.multiply(turned, self._sin))

    def _heads(self, x: Any, count: int) -> Any:
        """Return x [1, L, H * D] as [1, H, L, D]."""
        import numpy as np

        ops = self._ops
        split = ops.reshape(x, np.array([0, 0, count, _SIZE]), special_zero=True)
        return ops.transpose(split, np.array([0, 2, 1, 3]))

    def _cached(self, x: Any, name: str) -> Any:
        """Return what the state holds with x [1, G, L, D] behind it, a copy for each query head."""
        import numpy as np

        ov, ops = self._ov, self._ops
        info = ov.op.util.VariableInfo()
        info.data_shape = ov.PartialShape([-1, _GROUPS, -1, _SIZE])
        info.data_type, info.variable_id = ov.Type.f32, name
        variable = ov.op.util.Variable(info)
        past = ops.read_value(np.zeros((1, _GROUPS, 0, _SIZE), np.float32), variable)
        past = ops.gather(past, self._beams, ops.constant(0))
        present = ops.concat([past, x], 2)
        self._sinks.append(ops.assign(present, variable))
        shares = _HEADS // _GROUPS
        copies = ops.broadcast(
            ops.unsqueeze(present, np.array([2])),
            np.array([1, 1, shares, 1, 1]),
            broadcast_spec="BIDIRECTIONAL",
        )
        return ops.reshape(copies, np.array([0, _HEADS, -1, _SIZE]), special_zero=True)

    def _layer(self, x: Any, layer: int) -> Any:
        import numpy as np

        ops = self._ops
        at = f"model.layers.{layer}"
        y = self._normed(x, f"{at}.input_layernorm")
        query, key, value = (
            self._heads(self._linear(y, f"{at}.self_attn.{name}_proj"), count)
            for name, count in (("q", _HEADS), ("k", _GROUPS), ("v", _GROUPS))
        )
        y = ops.scaled_dot_product_attention(
            self._rotated(query),
            self._cached(self._rotated(key), f"key {layer}"),
            self._cached(value, f"value {layer}"),
            causal=True,
        )
        y = ops.transpose(y, np.array([0, 2, 1, 3]))
        y = ops.reshape(y, np.array([0, 0, _HEADS * _SIZE]), special_zero=True)
        x = ops.add(x, self._linear(y, f"{at}.self_attn.o_proj"))
        y = self._normed(x, f"{at}.post_attention_layernorm")
        gate = ops.swish(self._linear(y, f"{at}.mlp.gate_proj"))
        y = ops.multiply(gate, self._linear(y, f"{at}.mlp.up_proj"))
        return ops.add(x, self._linear(y, f"{at}.mlp.down_proj"))


class _Session:
    """The compiled model and its state."""

    def __init__(self, network: _Network, threads: int) -> None:
        ov: Any = importlib.import_module("openvino")

        self._ov = ov
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16",
            # As many bits as the other contestants' keys and values have.
            "KV_CACHE_PRECISION": "bf16",
            # Of x, where weights are of few bits; 32, the default, is slower to read prompts.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 64,
        }
        self.compiled = ov.Core().compile_model(network.model, "CPU", settings)
        self._request = self.compiled.create_infer_request()

    def read(self, tokens: list[int], position: int, kept: list[int]) -> Any:
        """Read tokens behind as many as the state holds, and return the kept rows' logits."""
        import numpy as np

        where = np.arange(position, position + len(tokens))
        given = (np.array([tokens]), where[None], np.array(kept), np.zeros(1, np.int32))
        return self._request.infer(dict(enumerate(given)))[0]

    def forget(self) -> None:
        self._request.reset_state()

    def prefill(self, length: int) -> float:
        """Return the seconds that a prompt takes."""
        self.forget()
        start = time.perf_counter()
        self.read([i % SHAPE["vocab_size"] for i in range(length)], 0, [length - 1])
        return time.perf_counter() - start

    def decode(self, length: int, steps: int) -> float:
        """Return the seconds that steps take behind any keys and values."""
        import numpy as np

        generator = np.random.default_rng(0)
        self.forget()
        for state in self._request.query_state():
            drawn = generator.standard_normal((1, _GROUPS, length, _SIZE), np.float32)
            state.state = self._ov.Tensor(drawn)
        token = int(self.read([7], length, [0]).argmax())
        start = time.perf_counter()
        for position in range(length + 1, length + 1 + steps):
            token = int(self.read([token], position, [0]).argmax())
        return time.perf_counter() - start

    def logits(self) -> Any:
        """Return the logits [16, vocabulary] of the tokens that other contestants are held to."""
        import numpy as np

        tokens = list(range(100, 100 + CHECKED))
        half = CHECKED // 2
        self.forget()
        found = [self.read(tokens[:half], 0, list(range(half)))]
        found += [self.read(tokens[i : i + 1], i, [0]) for i in range(half, CHECKED)]
        return np.concatenate(found, 1)[0]

    def kinds(self) -> list[str]:
        """Return the kinds of operators that the plugin made of the graph."""
        found = self.compiled.get_runtime_model().get_ops()
        return sorted({str(node.get_rt_info()["layerType"].value) for node in found})


def answer_commands(kind: str, layers: int, threads: int, weights: Path, exact: Path) -> None:
    """Answer commands until there are no more, as benchmarks.language.model's does.

    Raises:
        RuntimeError: the plugin would not compute attention by its own operator.
    """
    import numpy as np

    network = _Network(weights, kind, layers)
    session = _Session(network, threads)
    if not any("ScaledDotProductAttention" in found for found in session.kinds()):
        raise RuntimeError(f"openvino: expected an operator of attention among {session.kinds()}")
    per_key = 2 * _GROUPS * _SIZE * 2
    found = {
        "weight_bytes": network.weight_bytes,
        "products": network.products,
        "bytes_per_key": per_key * layers,
    }
    del network
    print(json.dumps(found), flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        numbers = [int(word) for word in words]
        if command == "prefill":
            answer = session.prefill(*numbers)
        elif command == "decode":
            answer = session.decode(*numbers)
        else:
            truth = np.load(exact)
            off = session.logits() - truth
            answer = float(np.linalg.norm(off) / np.linalg.norm(truth))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    answer_commands(
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5])
    )
