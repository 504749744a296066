"""The modules take the place of torch's: parameters, names, packed sequences and all."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_padded_sequence

from torchyard_kernels import PackedRecurrent, gru, nn

PAIRS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


def close(ours, theirs):
    for one, other in zip(
        torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(theirs), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", PAIRS)
def test_a_module_is_made_and_initialised_as_torchs(name):
    arguments = {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}
    torch.manual_seed(5)
    theirs = getattr(torch.nn, name)(3, 4, **arguments)
    torch.manual_seed(5)
    ours = PAIRS[name](3, 4, **arguments)

    assert list(ours.state_dict()) == list(theirs.state_dict())
    close(list(ours.state_dict().values()), list(theirs.state_dict().values()))
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert repr(ours) == repr(theirs)
    inputs = torch.randn(2, 5, 3)
    close(ours(inputs), theirs(inputs))


@pytest.mark.parametrize("name", PAIRS)
def test_a_twin_shares_parameters_and_training(name):
    theirs = getattr(torch.nn, name)(3, 4).double().eval()
    ours = nn.from_torch(theirs)

    assert isinstance(ours, PAIRS[name])
    assert not ours.training
    assert all(a is b for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    inputs = torch.randn(5, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_hh_l0.mul_(2)
    close(ours(inputs), theirs(inputs))


def test_other_modules_have_no_twin():
    with pytest.raises(TypeError, match=r"torch\.nn\.LSTM, GRU or RNN, got Linear"):
        nn.from_torch(torch.nn.Linear(2, 2))


@given(
    name=st.sampled_from(list(PAIRS)),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    sort=st.booleans(),
    bidirectional=st.booleans(),
    stated=st.booleans(),
)
@settings(max_examples=60)
def test_packed_sequences_go_in_and_come_out_as_torchs(name, lengths, sort, bidirectional, stated):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(3, 4, num_layers=2, bidirectional=bidirectional).double()
    ours = nn.from_torch(theirs)
    lengths = sorted(lengths, reverse=True) if sort else lengths
    padded = torch.randn(max(lengths), len(lengths), 3, dtype=torch.float64)
    packed = pack_padded_sequence(padded, torch.tensor(lengths), enforce_sorted=sort)
    state = None
    if stated:
        shape = (4 if bidirectional else 2, len(lengths), 4)
        parts = torch.randn(2, *shape, dtype=torch.float64)
        state = tuple(parts) if name == "LSTM" else parts[0]

    got, wanted = ours(packed, state), theirs(packed, state)

    assert type(got[0]) is type(wanted[0])
    torch.testing.assert_close(got[0].data, wanted[0].data)
    for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        mine, other = getattr(got[0], field), getattr(wanted[0], field)
        assert (mine is None) == (other is None)
        assert mine is None or torch.equal(mine, other)
    close(got[1], wanted[1])


def test_gradients_pass_through_packed_sequences():
    theirs = torch.nn.GRU(3, 4, bidirectional=True).double()
    ours = nn.from_torch(theirs)
    padded = torch.randn(5, 3, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for module in (ours, theirs):
        packed = pack_padded_sequence(padded, torch.tensor([2, 5, 3]), enforce_sorted=False)
        output, state = module(packed)
        loss = output.data.sin().sum() + state.square().sum()
        found.append(torch.autograd.grad(loss, [padded, *theirs.parameters()]))
    close(*found)


def test_packed_weights_follow_changes_in_place_replacement_and_conversion():
    module = nn.GRU(8, 8).to(torch.bfloat16).eval().prepack()
    inputs = torch.randn(4, 2, 8, dtype=torch.bfloat16)

    def fresh():
        return nn.from_torch(copy_of(module))(inputs)

    def copy_of(module):
        theirs = torch.nn.GRU(8, 8).to(next(module.parameters()).dtype)
        theirs.load_state_dict(module.state_dict())
        return theirs.eval()

    with torch.no_grad():
        close(module(inputs), fresh())
        module.weight_ih_l0.mul_(-1)
        close(module(inputs), fresh())
        module.weight_hh_l0 = torch.nn.Parameter(torch.randn(24, 8, dtype=torch.bfloat16))
        close(module(inputs), fresh())
        module.load_state_dict(torch.nn.GRU(8, 8).to(torch.bfloat16).state_dict())
        close(module(inputs), fresh())
        module, inputs = module.float(), inputs.float()
        close(module(inputs), fresh())
        close(copy.deepcopy(module)(inputs), fresh())


def test_packed_weights_are_passed_over_where_gradients_are_recorded():
    module = nn.GRU(8, 8).prepack()
    inputs = torch.randn(4, 2, 8)
    output, _ = module(inputs)
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_a_packed_module_is_pickled_compiled_and_exported_from_its_plain_weights():
    module = nn.GRU(8, 8, batch_first=True).eval().prepack()
    inputs = torch.randn(2, 5, 8), torch.randn(1, 2, 8)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        expected = module(*inputs)
        close(compiled(*inputs), expected)
        close(torch.export.export(module, inputs).module()(*inputs), expected)
        close(pickle.loads(pickle.dumps(module))(*inputs), expected)


def test_packed_weights_go_to_the_functions_and_have_their_layers():
    layers = torch.nn.GRU(8, 8, num_layers=2, bidirectional=True)
    weights = PackedRecurrent("gru", layers._flat_weights, num_layers=2, bidirectional=True)
    inputs = torch.randn(4, 2, 8)
    with torch.no_grad():
        close(gru(inputs, None, weights), layers(inputs))
        close(gru(inputs, None, weights), layers(inputs))


def test_packed_weights_of_another_kind_are_refused():
    layers = torch.nn.RNN(3, 4)
    with pytest.raises(
        ValueError, match="kind: expected 'lstm' or 'gru' or 'rnn_tanh' or 'rnn_relu'"
    ):
        PackedRecurrent("rnn", layers._flat_weights)
    weights = PackedRecurrent("rnn_tanh", layers._flat_weights)
    with pytest.raises(ValueError, match="weights: expected those of gru, got those of rnn_tanh"):
        gru(torch.randn(2, 2, 3), None, weights)


class Doubling(torch.nn.LSTM):
    def forward(self, input, hx=None):
        return super().forward(input * 2, hx)


class Permuting(torch.nn.GRU):
    def permute_hidden(self, hx, permutation):
        return -hx


class Named(torch.nn.GRU):
    """Defines nothing that a call computes."""

    def __init__(self, size):
        super().__init__(size, size)
        self.size = size

    def width(self):
        return self.size


def test_a_subclass_with_code_of_its_own_is_refused_by_name():
    with pytest.raises(TypeError, match="got Doubling, which has its own forward"):
        nn.from_torch(Doubling(3, 4))
    with pytest.raises(TypeError, match="own permute_hidden"):
        nn.GRU.from_torch(Permuting(3, 4))
    assigned = torch.nn.GRU(3, 4)
    assigned.forward = lambda input, hx=None: (input, hx)
    with pytest.raises(TypeError, match="forward that was assigned"):
        nn.from_torch(assigned)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.LSTM, got GRU"):
        nn.LSTM.from_torch(torch.nn.GRU(3, 4))
    theirs = Named(3)
    inputs = torch.randn(5, 2, 3)
    close(nn.from_torch(theirs)(inputs), theirs(inputs))


def test_hooks_are_shared_and_are_removed_together():
    theirs = torch.nn.LSTM(3, 4)
    seen = []
    before = theirs.register_forward_pre_hook(
        lambda module, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True
    )
    theirs.register_forward_hook(lambda module, args, out: (out[0] + 1, out[1]))
    theirs.register_full_backward_hook(lambda module, inputs, outputs: seen.append(type(module)))
    ours = nn.from_torch(theirs)
    inputs = torch.randn(5, 2, 3, requires_grad=True)
    close(ours(inputs), theirs(inputs))
    ours(inputs)[0].sum().backward()
    assert seen == [nn.LSTM]
    before.remove()
    close(ours(inputs), theirs(inputs))


WRAPPERS = {
    "weight_norm": lambda module, name: torch.nn.utils.weight_norm(module, name),
    "parametrizations": lambda module, name: torch.nn.utils.parametrizations.weight_norm(
        module, name
    ),
    "orthogonal": lambda module, name: torch.nn.utils.parametrizations.orthogonal(module, name),
    "prune": lambda module, name: prune.l1_unstructured(module, name, 0.3),
    "spectral_norm": lambda module, name: torch.nn.utils.spectral_norm(module, name),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("kind", PAIRS)
def test_weights_that_are_computed_keep_their_effect(kind, wrapper):
    # In float64, since derivatives of the spectral norm lose digits of float32.
    theirs = WRAPPERS[wrapper](getattr(torch.nn, kind)(3, 4).double(), "weight_hh_l0").eval()
    ours = nn.from_torch(theirs)
    inputs = torch.randn(5, 2, 3, dtype=torch.float64)
    close(ours(inputs), theirs(inputs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert dict(ours.named_parameters()).keys() == dict(theirs.named_parameters()).keys()
    found = []
    for module in (ours, theirs):
        module.zero_grad()
        module(inputs)[0].sum().backward()
        found.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
    close(*found)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.mul_(2)
    close(ours(inputs), theirs(inputs))


@pytest.mark.parametrize("name", PAIRS)
def test_what_model_code_calls_on_torchs_modules_is_there(name):
    torch.manual_seed(3)
    theirs = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
    ours = nn.from_torch(theirs)
    assert ours.flatten_parameters() is None
    for one, other in zip(ours.all_weights, theirs.all_weights, strict=True):
        assert all(a is b for a, b in zip(one, other, strict=True))
    torch.manual_seed(4)
    ours.reset_parameters()
    drawn = [p.clone() for p in ours.parameters()]
    torch.manual_seed(4)
    theirs.reset_parameters()
    close(drawn, list(theirs.parameters()))
    if name == "RNN":
        assert ours.nonlinearity == theirs.nonlinearity == "tanh"
        assert nn.RNN(3, 4, nonlinearity="relu").nonlinearity == "relu"
    with pytest.raises(TypeError, match=rf"torch\.jit\.script.*nn\.{name}; use torch\.export"):
        torch.jit.script(torch.nn.Sequential(ours))


@pytest.mark.parametrize("name", PAIRS)
def test_twins_stand_in_torchs_place(name, monkeypatch):
    monkeypatch.setattr(torch.nn, name, PAIRS[name])
    made = getattr(torch.nn, name)(3, 4)
    assert type(made) is PAIRS[name]
    assert made(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)
