"""Graphs that torch.compile keeps on disk: an upgrade of the ops in them is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

import torchyard_kernels as tk
from packages.core.tests.torch_features import graphs_name_sources
from torchyard_kernels._operators import OPERATORS

_PACKAGE = """
import torch
from torchyard import Operators

OPERATORS = Operators("toy", ["toy"])
OPERATORS.define(
    "twice(Tensor x) -> Tensor",
    lambda x: x * 2,
    lambda x: x.new_empty(x.shape),
    gradient=lambda ctx, grad: OPERATORS["backward"](grad),
)
OPERATORS.define(
    "backward(Tensor grad) -> Tensor",
    lambda grad: grad * 2,
    lambda grad: grad.new_empty(grad.shape),
)
"""
_RUN = """
import json, os, sys
import torch
import torch._inductor.compile_fx
from torch._dynamo.utils import counters
from torch._inductor.codecache import torch_key

torch_key()  # its sources, read once

def run(folder):
    sys.path.insert(0, folder)
    import toy
    x = torch.ones(2, requires_grad=True)
    out = torch.compile(lambda x: toy.OPERATORS["twice"](x), fullgraph=True)(x)
    (grad,) = torch.autograd.grad(out, x, torch.ones(2))
    aot, inductor = counters["aot_autograd"], counters["inductor"]
    hits = aot["autograd_cache_hit"], inductor["fxgraph_cache_hit"]
    misses = aot["autograd_cache_miss"], inductor["fxgraph_cache_miss"]
    print(json.dumps([grad.tolist(), hits, misses]), flush=True)

for folder in sys.argv[1:]:
    # torch is imported once; nothing has been computed with it yet.
    process = os.fork()
    if not process:
        run(folder)
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0, folder
"""


@pytest.mark.sweep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks of one")
def test_other_sources_are_compiled_again_and_the_same_are_not(tmp_path):
    schema = (
        _PACKAGE.replace("backward(Tensor grad)", "backward(Tensor grad, float by)")
        .replace("lambda grad: grad * 2", "lambda grad, by: grad * by")
        .replace("lambda grad: grad.new", "lambda grad, by: grad.new")
        .replace("(grad),", "(grad, 4.0),")
    )
    # Of which an old graph would give no sign but its results.
    formula = _PACKAGE.replace("(grad),", '(OPERATORS["backward"](grad)),')
    texts = {"first": _PACKAGE, "schema": schema, "formula": formula}
    assert len(set(texts.values())) == len(texts)
    for name, text in texts.items():
        (tmp_path / name / "toy").mkdir(parents=True)
        (tmp_path / name / "toy" / "__init__.py").write_text(text)
    runs = ["first", "schema", "first", "formula", "schema"]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *(str(tmp_path / name) for name in runs)],
        env=os.environ
        | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # Of AOTAutograd one graph, of Inductor the forward and the backward.
    cached, compiled = [[1, 2], [0, 0]], [[0, 0], [1, 2]]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [[2.0, 2.0], *compiled],
        [[4.0, 4.0], *compiled],
        [[2.0, 2.0], *cached],
        [[4.0, 4.0], *compiled],
        [[4.0, 4.0], *cached],
    ]


def _differentiated(x):
    weights = [torch.randn(12, size) for size in (4, 4)] + [torch.randn(12)] * 2
    sequence, _ = tk.gru(x[None], None, weights)
    kept = tk.topk(x, 2).values, tk.segmented_topk(x[0], torch.tensor([0, 2, 4]), 1).values
    (squares,) = tk.foreach_map(lambda a: a * a, [x])
    return sum(part.sum() for part in (sequence, squares, tk.linear(x, x), *kept))


def _computed(x):
    out = tk.linear(x, torch.ones(3, 4), epilogue=lambda y: y.relu() + 1)
    tk.foreach_map_(lambda a: a * a, [out])
    return out


def _ours(graph):
    # What writes in place is the first argument of an op of torch's.
    ops = {op for node in graph.nodes for op in (node.target, *node.args[:1])}
    return {op for op in ops if getattr(op, "namespace", None) == OPERATORS.namespace}


def test_a_compiled_graph_names_the_sources_of_every_op():
    if not graphs_name_sources():
        pytest.skip("this torch's compiled graphs have ops' lasting names")
    called = set()

    def note(graph, example_inputs):
        called.update(_ours(graph.graph))
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=note, bw_compiler=note)
    x = torch.randn(3, 4, requires_grad=True)
    torch.compile(_differentiated, fullgraph=True, backend=backend)(x).backward()
    torch.compile(_computed, fullgraph=True, backend=backend)(x.detach())
    assert {op._overloadname for op in called} == {OPERATORS.overload}
    assert {op._opname for op in called} == set(OPERATORS._calls)


@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
def test_an_exported_program_names_ops_by_names_that_last(strict):
    class Model(torch.nn.Module):
        def forward(self, x):
            return _differentiated(x) + _computed(x).sum()

    program = torch.export.export(Model(), (torch.randn(3, 4),), strict=strict)
    called = _ours(program.graph)
    assert {op._overloadname for op in called} == {"default"}
    assert {op._opname for op in called} == set(OPERATORS._calls) - {"recurrent_backward"}


def test_an_op_called_without_an_overload_is_the_one_that_lasts():
    seen = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            seen.append(op)
            return op(*args, **(kwargs or {}))

    x = torch.randn(3, 4)
    with Noting():
        torch.ops.torchyard_kernels.topk(x, None, 2, 1, True, "sorted")
        tk.masked_topk(x, x > 0, 2)
    assert seen.count(torch.ops.torchyard_kernels.topk.default) == 2


def test_torchs_check_passes_for_the_name_that_the_sources_give():
    op = getattr(torch.ops.torchyard_kernels.topk, OPERATORS.overload)
    x = torch.randn(3, 4, requires_grad=True)
    result = torch.library.opcheck(op, (x, None, 2, 1, True, "sorted"))
    assert set(result.values()) == {"SUCCESS"}
