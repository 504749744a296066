"""llama.cpp's prompt cache, in a process of its own.

``python -m benchmarks.prefix_reuse.ggml FILE VOCABULARY CONTEXT``. As its server with one slot, it
keeps the keys and values that the prompt before has in common with a prompt. It reads lines of
JSON, ``{"tokens": [...], "answer": 16}``, and answers each with the drawn tokens, the seconds to
the first and to the last, and how many tokens were kept.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.language.ggml import Session

__all__ = ["write_weights"]


def write_weights(path: Path, model: Any) -> None:
    """Write a Llama of transformers as a GGUF file in float32."""
    gguf: Any = importlib.import_module("gguf")
    config, state = model.config, model.state_dict()
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    # Tokens go in as numbers; a vocabulary is needed for the file to load.
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{number}>".encode() for number in range(config.vocab_size)])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_token_types([1] * config.vocab_size)

    def add(name: str, source: str, interleaved: int = 0) -> None:
        weight = state[f"{source}.weight"].float()
        if interleaved:
            # Pairs that are turned together are neighbours there, and half a head apart here.
            rows, columns = weight.shape
            halves = weight.view(interleaved, 2, rows // interleaved // 2, columns)
            weight = halves.transpose(1, 2).reshape(rows, columns)
        writer.add_tensor(f"{name}.weight", weight.contiguous().numpy())

    add("token_embd", "model.embed_tokens")
    for number in range(config.num_hidden_layers):
        at, of = f"blk.{number}", f"model.layers.{number}"
        add(f"{at}.attn_norm", f"{of}.input_layernorm")
        add(f"{at}.attn_q", f"{of}.self_attn.q_proj", heads)
        add(f"{at}.attn_k", f"{of}.self_attn.k_proj", groups)
        add(f"{at}.attn_v", f"{of}.self_attn.v_proj")
        add(f"{at}.attn_output", f"{of}.self_attn.o_proj")
        add(f"{at}.ffn_norm", f"{of}.post_attention_layernorm")
        add(f"{at}.ffn_gate", f"{of}.mlp.gate_proj")
        add(f"{at}.ffn_up", f"{of}.mlp.up_proj")
        add(f"{at}.ffn_down", f"{of}.mlp.down_proj")
    add("output_norm", "model.norm")
    add("output", "lm_head")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _main(path: Path, vocabulary: int, threads: int, context: int) -> None:
    session = Session(path, threads, context)
    print(json.dumps({"module": session.c.__name__.split(".")[0]}), flush=True)
    read: list[int] = []
    for line in sys.stdin:
        command = json.loads(line)
        tokens, drawn = command["tokens"], []
        begun = time.perf_counter()
        kept = 0
        # One token at least is left to compute.
        while kept < min(len(read), len(tokens) - 1) and read[kept] == tokens[kept]:
            kept += 1
        session.drop(kept)
        session.decode(tokens[kept:])
        drawn.append(session.likeliest(vocabulary))
        first = time.perf_counter() - begun
        while len(drawn) < command["answer"]:
            session.decode(drawn[-1:])
            drawn.append(session.likeliest(vocabulary))
        read = [*tokens, *drawn[:-1]]
        seconds = time.perf_counter() - begun
        answer = {"tokens": drawn, "first": first, "seconds": seconds, "kept": kept}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), torch.get_num_threads(), int(sys.argv[3]))
