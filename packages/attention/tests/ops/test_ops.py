"""Eager calls, compiled graphs, exported programs and fake tensors agree, decisions included."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import torchyard
from torchyard_attention import (
    AuxRequest,
    create_block_mask,
    explain,
    flex_attention,
)
from torchyard_attention._ops import _computation

BATCH, HEADS, LENGTH, HEAD_DIM = 2, 4, 160, 16
DEVICE = torch.device("cpu")


def window(b, h, q, k):
    return (q >= k) & (q - k < 48)


def loss_of(query, key, value, slopes, bias, block_mask):
    def score_mod(score, b, h, q, k):
        return score + slopes[h] * (k - q) + bias[h, q, k]

    out, aux = flex_attention(
        query,
        key,
        value,
        score_mod=score_mod,
        block_mask=block_mask,
        return_aux=AuxRequest(lse=True),
    )
    return out.sin().sum() + aux.lse.sum()


def dense_loss_of(query, key, value, slopes, bias):
    q = torch.arange(query.shape[2])[:, None]
    k = torch.arange(key.shape[2])[None, :]
    scores = query @ key.transpose(-1, -2) / HEAD_DIM**0.5
    scores = scores + slopes[:, None, None] * (k - q) + bias
    scores = scores.masked_fill(~window(0, 0, q, k), -float("inf"))
    return (scores.softmax(-1) @ value).sin().sum() + scores.logsumexp(-1).sum()


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    shapes = [(BATCH, HEADS, LENGTH, HEAD_DIM)] * 3 + [(HEADS,), (HEADS, LENGTH, LENGTH)]
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]


@pytest.fixture
def block_mask():
    return create_block_mask(window, None, None, LENGTH, LENGTH, device="cpu")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()


def gradients(function, inputs, *rest):
    return torch.autograd.grad(function(*inputs, *rest), inputs)


def test_gradients_of_all_inputs_equal_the_dense_computation(inputs, block_mask):
    expected = gradients(dense_loss_of, inputs)
    for ours, dense in zip(gradients(loss_of, inputs, block_mask), expected, strict=True):
        torch.testing.assert_close(ours, dense)


@pytest.mark.sweep
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_training_equals_eager_with_one_graph(backend, inputs, block_mask):
    compiled = torch.compile(loss_of, fullgraph=True, backend=backend)
    expected = gradients(loss_of, inputs, block_mask)
    for ours, eager in zip(gradients(compiled, inputs, block_mask), expected, strict=True):
        torch.testing.assert_close(ours, eager)


def test_a_new_closure_of_the_same_structure_does_not_recompile(inputs, block_mask):
    query, key, value, _, _ = (tensor.detach() for tensor in inputs)
    graphs = []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph

    @torch.compile(fullgraph=True, backend=count)
    def attend(query, key, value, slopes):
        return flex_attention(query, key, value, lambda s, b, h, q, k: s + slopes[h])

    results = [attend(query, key, value, torch.full((HEADS,), float(i))) for i in range(4)]

    assert len(graphs) == 1
    assert torch.equal(results[0], flex_attention(query, key, value, lambda s, *_: s + 0.0))


def test_a_mask_made_inside_of_a_compiled_function_is_the_same_mask(inputs):
    query, key, value = (tensor.detach() for tensor in inputs[:3])

    def attend(query, key, value):
        mask = create_block_mask(window, None, None, LENGTH, LENGTH, device="cpu")
        return flex_attention(query, key, value, block_mask=mask)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(query, key, value), attend(query, key, value))


def test_torchs_block_mask_gives_what_ours_gives_eager_and_compiled(inputs, block_mask):
    from torch.nn.attention.flex_attention import create_block_mask as torch_create_block_mask

    query, key, value = (tensor.detach() for tensor in inputs[:3])
    theirs = torch_create_block_mask(window, None, None, LENGTH, LENGTH, device="cpu")
    expected = flex_attention(query, key, value, block_mask=block_mask)

    def attend(query, key, value):
        return flex_attention(query, key, value, block_mask=theirs)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert torch.equal(attend(query, key, value), expected)
    assert torch.equal(compiled(query, key, value), expected)


class _Module(torch.nn.Module):
    def __init__(self, block_mask):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(HEADS, LENGTH, LENGTH, dtype=torch.float64))
        self.block_mask = block_mask

    def forward(self, query, key, value):
        return flex_attention(
            query,
            key,
            value,
            lambda s, b, h, q, k: s + self.bias[h, q, k],
            block_mask=self.block_mask,
        )


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
def test_an_exported_program_holds_the_op_and_its_values(strict, inputs, block_mask, tmp_path):
    module, arguments = _Module(block_mask), tuple(tensor.detach() for tensor in inputs[:3])
    program = torch.export.export(module, arguments, strict=strict)
    torch.export.save(program, tmp_path / "module.pt2")
    loaded = torch.export.load(tmp_path / "module.pt2")

    targets = [str(node.target) for node in loaded.graph.nodes if node.op == "call_function"]
    assert "torchyard_attention.forward.default" in targets
    assert torch.equal(loaded.module()(*arguments), module(*arguments))


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_fake_tensors_have_the_real_results_sizes_and_decision(grad, masked, inputs):
    real = [tensor.detach().requires_grad_(grad) for tensor in inputs[:3]]
    mask = create_block_mask(window, None, None, LENGTH, LENGTH, device="cpu") if masked else None
    aux = AuxRequest(lse=True, max_scores=True)
    out, extra = flex_attention(*real, block_mask=mask, return_aux=aux)
    decision = explain(*real, block_mask=mask, return_aux=aux)

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(tensor) for tensor in real]
        fake_out, fake_extra = flex_attention(*fake, block_mask=mask, return_aux=aux)
        fake_decision = explain(*fake, block_mask=mask, return_aux=aux)

    for ours, theirs in ((out, fake_out), *zip(extra, fake_extra, strict=True)):
        assert (ours.shape, ours.stride(), ours.dtype) == (
            theirs.shape,
            theirs.stride(),
            theirs.dtype,
        )
    assert fake_decision == decision


def test_the_ops_pass_torchs_own_checks(inputs, block_mask):
    query, key, value, slopes, _ = (tensor.detach() for tensor in inputs)
    arguments = (
        query.requires_grad_(),
        key,
        value,
        [slopes],
        '["getitem",["$0","h"],{}]\n["add",["s","%0"],{}]\n"%1"',
        block_mask.block_tensors(),
        list(block_mask.BLOCK_SIZE),
        False,
        [],
        block_mask.mask_text,
        [],
        0.25,
        "cpu.rows_per_item=64",
        True,
        False,
        True,
        "",
    )
    results = torch.library.opcheck(torch.ops.torchyard_attention.forward.default, arguments)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.sweep
@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_the_backward_is_asked_for_the_captured_gradients_that_are_wanted(
    backend, inputs, block_mask, monkeypatch
):
    asked = []
    request_of = _computation.request_of

    def noted(call, **rest):
        asked.append(call.captured_grad)
        return request_of(call, **rest)

    monkeypatch.setattr(_computation, "request_of", noted)
    *rest, slopes, bias = inputs
    bias.requires_grad_(False)
    function = loss_of
    if backend is not None:
        function = torch.compile(loss_of, fullgraph=True, backend=backend)

    function(*inputs, block_mask).backward()

    assert asked == [(), (True, False)], "the forward's and the backward's"
    assert bias.grad is None
    decision = explain(*rest, lambda s, b, h, q, k: s * slopes[h] + bias[h, q, k], backward=True)
    assert decision.request.captured_grad == (True, False)
    assert slopes.grad.abs().sum() > 0


def test_a_compiled_double_backward_is_refused_by_torch(inputs, block_mask):
    compiled = torch.compile(loss_of, fullgraph=True, backend="aot_eager")
    (grad,) = torch.autograd.grad(compiled(*inputs, block_mask), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()


def test_max_scores_has_no_gradient_and_disturbs_none(inputs):
    def attend(query, key, value):
        aux = AuxRequest(max_scores=True)
        out, extra = flex_attention(query, key, value, return_aux=aux)
        return out, extra.max_scores

    out, max_scores = attend(*inputs[:3])
    assert not max_scores.requires_grad
    compiled_out, compiled_max = torch.compile(attend, fullgraph=True, backend="aot_eager")(
        *inputs[:3]
    )
    assert torch.equal(compiled_max, max_scores)
    expected = torch.autograd.grad(out.sum(), inputs[:3])
    for ours, eager in zip(
        torch.autograd.grad(compiled_out.sum(), inputs[:3]), expected, strict=True
    ):
        torch.testing.assert_close(ours, eager)


def test_training_works_under_a_dispatch_mode(inputs, block_mask):
    expected = gradients(loss_of, inputs, block_mask)
    with FlopCounterMode(display=False):
        watched = gradients(loss_of, inputs, block_mask)
    for ours, plain in zip(watched, expected, strict=True):
        torch.testing.assert_close(ours, plain)


def test_a_captured_mask_tensor_changed_in_place_is_noticed(inputs):
    query, key, value = (tensor.detach() for tensor in inputs[:3])
    limit = torch.tensor(10)
    mask = create_block_mask(lambda b, h, q, k: k < limit, None, None, LENGTH, LENGTH, device="cpu")
    limit.fill_(5)
    fresh = create_block_mask(
        lambda b, h, q, k: k < limit, None, None, LENGTH, LENGTH, device="cpu"
    )
    ours = flex_attention(query, key, value, block_mask=mask)
    assert torch.equal(ours, flex_attention(query, key, value, block_mask=fresh))


def test_a_function_that_needs_vmap_works_compiled(inputs):
    query, key, value = (tensor.detach() for tensor in inputs[:3])
    embedding = torch.randn(LENGTH, 4, dtype=torch.float64)

    def attend(query, key, value):
        return flex_attention(
            query, key, value, lambda s, b, h, q, k: s + torch.dot(embedding[q], embedding[k])
        )

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(query, key, value), attend(query, key, value))


def test_a_demanded_implementation_never_falls_back(inputs):
    query, key, value = (tensor.detach() for tensor in inputs[:3])
    with pytest.raises(torchyard.UnsupportedError) as error:
        flex_attention(query, key, value, lambda s, *_: s * 2, implementation="attention.sdpa")
    assert "attention.sdpa" in str(error.value)
    assert "E_SCORE_MOD" in str(error.value)
    assert "attention.tiled" in str(error.value)


def test_a_demand_by_context_is_followed(inputs):
    query, key, value = (tensor.detach() for tensor in inputs[:3])
    with torchyard.use(attention="attention.reference"):
        assert explain(query, key, value).name == "attention.reference"
    assert explain(query, key, value).name != "attention.reference"
