"""The contestants of benchmarks.language that are llama.cpp's, in a process of their own.

``python -m benchmarks.language.ggml TYPE LAYERS THREADS CONTEXT`` writes a file of the model's
shape with random weights, loads it, and answers commands as benchmarks.language.model does. It
takes llama_cpp (llama-cpp-python) where that is installed, else ik_llama_cpp.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.language.shape import SHAPE

__all__ = ["Session", "api", "write_model"]

_MODULES: Final = ("llama_cpp", "ik_llama_cpp._ctypes_api")


def api() -> Any:
    """Return the C functions.

    Raises:
        ImportError: neither package is installed.
    """
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError("neither llama-cpp-python nor ik-llama-cpp-python is installed")


def write_model(path: Path, kind: str, layers: int) -> tuple[int, int]:
    """Write a GGUF file of the shape with random weights.

    Args:
        path: of the file.
        kind: F16, BF16, Q8_0 or Q4_0, of matrices.
        layers: how many.

    Returns:
        Bytes and numbers of the matrices that are read for a token.
    """
    import numpy as np

    gguf: Any = importlib.import_module("gguf")

    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    heads, groups, size = (
        SHAPE["num_attention_heads"],
        SHAPE["num_key_value_heads"],
        SHAPE["head_dim"],
    )
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(layers)
    writer.add_context_length(SHAPE["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(size)
    writer.add_vocab_size(SHAPE["vocab_size"])
    # Tokens go in as numbers; a vocabulary is needed for the file to load.
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{i}>".encode() for i in range(SHAPE["vocab_size"])])
    writer.add_token_scores([0.0] * SHAPE["vocab_size"])
    writer.add_token_types([1] * SHAPE["vocab_size"])
    quantised = getattr(gguf.GGMLQuantizationType, kind)
    generator = np.random.default_rng(0)
    total = numbers = 0

    def matrix(name: str, rows: int, columns: int, *, read: bool = True) -> None:
        nonlocal total, numbers
        # A few rows again and again: what numbers are multiplied does not change the time.
        part = generator.standard_normal((64, columns), dtype=np.float32) / columns**0.5
        data = np.tile(gguf.quants.quantize(part, quantised), (rows // 64, 1))
        writer.add_tensor(name, data, raw_dtype=quantised)
        if read:
            total, numbers = total + data.nbytes, numbers + rows * columns

    matrix("token_embd.weight", SHAPE["vocab_size"], hidden, read=False)
    for layer in range(layers):
        at = f"blk.{layer}"
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{at}.{norm}.weight", np.ones(hidden, np.float32))
        matrix(f"{at}.attn_q.weight", heads * size, hidden)
        matrix(f"{at}.attn_k.weight", groups * size, hidden)
        matrix(f"{at}.attn_v.weight", groups * size, hidden)
        matrix(f"{at}.attn_output.weight", hidden, heads * size)
        matrix(f"{at}.ffn_gate.weight", inner, hidden)
        matrix(f"{at}.ffn_up.weight", inner, hidden)
        matrix(f"{at}.ffn_down.weight", hidden, inner)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    matrix("output.weight", SHAPE["vocab_size"], hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total, numbers


class Session:
    """A loaded model and its context.

    Args:
        path: of the file.
        threads: that compute.
        context: tokens that it has room for.
    """

    def __init__(self, path: Path, threads: int, context: int) -> None:
        self.c = c = api()
        c.llama_backend_init()
        parameters = c.llama_model_default_params()
        self.model = c.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise RuntimeError(f"the file does not load: {path}")
        given = c.llama_context_default_params()
        given.n_ctx = given.n_batch = context
        given.n_threads = given.n_threads_batch = threads
        self.context = c.llama_init_from_model(self.model, given)
        if not self.context:
            raise RuntimeError("no context could be made")
        self.positions = 0

    def clear(self) -> None:
        c = self.c
        if hasattr(c, "llama_memory_clear"):
            c.llama_memory_clear(c.llama_get_memory(self.context), True)
        else:
            c.llama_kv_cache_clear(self.context)
        self.positions = 0

    def keep(self, length: int) -> None:
        """Leave the first tokens of what was read, and read them where they were not."""
        if self.positions < length:
            self.read(length)
        self.drop(length)

    def drop(self, length: int) -> None:
        """Leave the first tokens of what was read."""
        c = self.c
        if hasattr(c, "llama_memory_seq_rm"):
            kept = c.llama_memory_seq_rm(c.llama_get_memory(self.context), 0, length, -1)
        else:
            # In the library, and not among what the package declares of it.
            remove = c._lib.llama_kv_cache_seq_rm
            remove.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
            remove.restype = ctypes.c_bool
            kept = remove(self.context, 0, length, -1)
        if not kept:
            raise RuntimeError(f"tokens behind the first {length} cannot be dropped")
        self.positions = length

    def decode(self, tokens: list[int]) -> None:
        """Read tokens, and compute the logits of the last."""
        batch = self.c.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, self.positions + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i == len(tokens) - 1
        failed = self.c.llama_decode(self.context, batch)
        self.c.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode failed: {failed}")
        self.positions += len(tokens)
        # Computed by now, where the work is not done before it is asked for.
        if not math.isfinite(self.c.llama_get_logits_ith(self.context, -1)[0]):
            raise RuntimeError("llama_decode: expected finite logits")

    def likeliest(self, vocabulary: int) -> int:
        """Return the token with the largest logit."""
        logits = self.c.llama_get_logits_ith(self.context, -1)
        return max(range(vocabulary), key=logits[:vocabulary].__getitem__)

    def read(self, length: int) -> float:
        """Return the seconds that a prompt takes."""
        self.clear()
        start = time.perf_counter()
        self.decode([i % SHAPE["vocab_size"] for i in range(length)])
        return time.perf_counter() - start


def _main(kind: str, layers: int, threads: int, context: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        total, numbers = write_model(path, kind, layers)
        session = Session(path, threads, context)
        per_key = 2 * SHAPE["num_key_value_heads"] * SHAPE["head_dim"] * 2
        found = {
            "weight_bytes": total,
            "products": numbers,
            "bytes_per_key": per_key * layers,
            "module": session.c.__name__.split(".")[0],
        }
        print(json.dumps(found), flush=True)
        for line in sys.stdin:
            command, *words = line.split()
            if command == "prefill":
                answer = session.read(int(words[0]))
            elif command == "decode":
                session.keep(int(words[0]))
                session.decode([7])
                start = time.perf_counter()
                for step in range(int(words[1])):
                    session.decode([step + 8])
                answer = time.perf_counter() - start
            else:
                # The weights are random ones of its own: there is nothing to compare with.
                answer = 0.0
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], *map(int, sys.argv[2:5]))
