"""Each kind of argument is taken as what it is, and anything else is refused by name."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from torchyard import arguments

# Where the core is installed alone, there is neither; the other cells have both.
np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

NESTED = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_of_numpy_are_integers(value):
    found = arguments.integer("f", "n", value, least=0, most=3)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize("value", [None, "3", 3.0, True, np.bool_(True), [3], torch.tensor(3)])
def test_what_only_counts_as_an_integer_is_refused(value):
    with pytest.raises(TypeError, match="f: n: expected an int of at least 0, got"):
        arguments.integer("f", "n", value, least=0)


@pytest.mark.parametrize("value", [-1, 4, 1 << 70, np.int64(-1)])
def test_an_integer_out_of_range_is_named(value):
    with pytest.raises(ValueError, match=f"f: n: expected an int of 0 to 3, got {value}; less"):
        arguments.integer("f", "n", value, least=0, most=3, remedy="less")


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2), Fraction(2)])
def test_real_numbers_are_numbers(value):
    found = arguments.number("f", "scale", value, above=0)
    assert found == 2.0
    assert type(found) is float


@pytest.mark.parametrize("value", [None, "2", True, 2j, torch.tensor(2.0), Decimal(2)])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(TypeError, match="f: scale: expected a finite number, got"):
        arguments.number("f", "scale", value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 1.5, 10**400])
def test_a_number_that_is_not_finite_or_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match="f: p: expected a finite number of 0 to 1, got"):
        arguments.number("f", "p", value, least=0, most=1)
    with pytest.raises(ValueError, match="a finite number above 1 and at most 1"):
        arguments.number("f", "p", value, above=1, most=1)


@pytest.mark.parametrize("value", [True, False, np.bool_(True), np.bool_(False)])
def test_bools_of_numpy_are_bools(value):
    found = arguments.boolean("f", "largest", value)
    assert type(found) is bool
    assert found == value


@pytest.mark.parametrize("value", [None, 0, 1, "False", "", [], torch.tensor(True)])
def test_what_only_counts_as_a_bool_is_refused(value):
    with pytest.raises(TypeError, match="f: largest: expected True or False, got"):
        arguments.boolean("f", "largest", value)


def test_sizes_that_torch_made_symbolic_stay_as_they_are():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    size = ShapeEnv().create_unbacked_symint()
    assert arguments.integer("f", "n", size, least=0) is size
    assert arguments.number("f", "n", size) is size
    flag = size == 3
    assert arguments.boolean("f", "n", flag) is flag


def test_a_choice_is_one_of_those_that_are_named():
    assert arguments.choice("f", "grad", "sum", ("sum", None)) == "sum"
    assert arguments.choice("f", "grad", None, ("sum", None)) is None
    with pytest.raises(ValueError, match="f: grad: expected 'sum' or None, got 'mean'"):
        arguments.choice("f", "grad", "mean", ("sum", None))
    with pytest.raises(TypeError, match="f: grad: expected 'sum' or None, got an empty list"):
        arguments.choice("f", "grad", [], ("sum", None))
    with pytest.raises(TypeError, match="f: bits: expected 1 or 4, got True"):
        arguments.choice("f", "bits", True, (1, 4))


def test_strings_functions_and_objects():
    assert arguments.text("f", "name", "a") == "a"
    assert arguments.function("f", "mod", len) is len
    assert arguments.instance("f", "name", 3, int) == 3
    with pytest.raises(TypeError, match="f: name: expected a string, got 3"):
        arguments.text("f", "name", 3)
    with pytest.raises(ValueError, match="f: name: expected a string that is not empty, got ''"):
        arguments.text("f", "name", "")
    with pytest.raises(TypeError, match="f: mod: expected a function, got 3; give one"):
        arguments.function("f", "mod", 3, remedy="give one")
    with pytest.raises(TypeError, match="f: name: expected int or str, got the class Tensor"):
        arguments.instance("f", "name", torch.Tensor, (int, str))
    with pytest.raises(TypeError, match=r"f: name: expected a module, got a numpy\.ndarray"):
        arguments.instance("f", "name", np.ones(2), torch.nn.Module, "a module")


def test_an_item_of_a_sequence_is_named_by_its_place():
    def whole(of, name, value):
        return arguments.integer(of, name, value)

    assert arguments.sequence("f", "sizes", [1, np.int64(2)], whole) == (1, 2)
    assert arguments.sequence("f", "sizes", ("a", 2)) == ("a", 2)
    with pytest.raises(TypeError, match=r"f: sizes\[1\]: expected an int, got 'a'"):
        arguments.sequence("f", "sizes", (1, "a"), whole)
    with pytest.raises(TypeError, match="f: sizes: expected a list or a tuple, got 'ab'"):
        arguments.sequence("f", "sizes", "ab")
    with pytest.raises(ValueError, match="f: sizes: expected a pair of 2, got 1"):
        arguments.sequence("f", "sizes", [1], expected="a pair", length=2)
    with pytest.raises(ValueError, match="f: sizes: expected a list or a tuple of at least 1, got"):
        arguments.sequence("f", "sizes", [], least=1)
    assert set(arguments.sequence("f", "sizes", frozenset({1, 2}), whole, sets=True)) == {1, 2}
    with pytest.raises(TypeError, match="f: sizes: expected a list or a tuple, got a set"):
        arguments.sequence("f", "sizes", {1, 2}, whole)
    with pytest.raises(TypeError, match="f: sizes: expected a list or a tuple, got a dict"):
        arguments.sequence("f", "sizes", {1: 2}, whole, sets=True)


def test_dtypes_and_devices():
    assert arguments.dtype("f", "dtype", torch.float32) is torch.float32
    assert arguments.device("f", "device", "cpu") == torch.device("cpu")
    assert arguments.device("f", "device", torch.device("meta")).type == "meta"
    with pytest.raises(ValueError, match=r"f: dtype: expected float16 or int8, got torch\.float32"):
        arguments.dtype("f", "dtype", torch.float32, (torch.float16, torch.int8))
    with pytest.raises(TypeError, match=r"f: dtype: expected a torch\.dtype, got 'float32'"):
        arguments.dtype("f", "dtype", "float32")
    with pytest.raises(ValueError, match=r"f: device: expected .* such as 'cpu', got 'nowhere'"):
        arguments.device("f", "device", "nowhere")
    with pytest.raises(TypeError, match=r"f: device: expected .*, got 3"):
        arguments.device("f", "device", 3)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, r"f: x: expected a dense tensor \[B, S\], got None"),
        (np.ones((2, 2)), TypeError, r"got a numpy\.ndarray"),
        ([[1.0]], TypeError, "got a list"),
        (NESTED, TypeError, "got a nested tensor; convert it with"),
        (torch.eye(2).to_sparse(), TypeError, r"layout torch\.sparse_coo; call to_dense\(\)"),
        (torch.ones(2, 2, dtype=torch.complex64), TypeError, "expected float32 or float64, got"),
        (torch.ones(2), ValueError, r"expected \[B, S\], got shape \[2\]"),
    ],
)
def test_what_is_no_tensor_of_the_kind_is_refused(value, error, text):
    with pytest.raises(error, match=text):
        arguments.tensor(
            "f", "x", value, dims=2, dtypes=(torch.float32, torch.float64), shape="[B, S]"
        )


def test_a_tensor_may_have_one_of_several_numbers_of_dimensions():
    assert arguments.tensor("f", "x", torch.ones(2, 2), dims=(1, 2)).shape == (2, 2)
    with pytest.raises(ValueError, match=r"f: x: expected 1 or 2 dimensions, got shape \[\]"):
        arguments.tensor("f", "x", torch.tensor(1.0), dims=(1, 2))


def test_storage_that_does_not_hold_the_elements_is_refused():
    for make in (
        lambda: torch.ones(4, 4),
        lambda: torch.ones(8, 8)[2:6, 2:6],
        lambda: torch.ones(4, 4).as_strided((2, 2), (1, 3), 9),
    ):
        whole = make()
        assert arguments.tensor("f", "x", whole) is whole
        needed = (whole.storage_offset() + (whole.shape[0] - 1) * whole.stride(0)) * 4 + (
            (whole.shape[1] - 1) * whole.stride(1) + 1
        ) * 4
        whole.untyped_storage().resize_(needed)
        assert arguments.tensor("f", "x", whole) is whole
        whole.untyped_storage().resize_(needed - 1)
        with pytest.raises(ValueError, match=f"f: x: expected {needed} bytes of storage, got"):
            arguments.tensor("f", "x", whole)


def test_tensors_without_memory_of_their_own_are_not_asked_for_storage():
    from torch._subclasses.fake_tensor import FakeTensorMode

    expanded = torch.ones(1).expand(100, 100)
    empty = torch.empty(0, 5)
    for x in (expanded, empty, torch.ones(3, device="meta")):
        assert arguments.tensor("f", "x", x) is x
    with FakeTensorMode():
        fake = torch.ones(3)
        assert arguments.tensor("f", "x", fake) is fake
    seen = torch.vmap(lambda x: arguments.tensor("f", "x", x) * 2)(torch.ones(3, 2))
    assert seen.shape == (3, 2)


def test_checks_are_compiled_with_the_function_around_them():
    @torch.compile(fullgraph=True, backend="eager")
    def checked(x, n, flag, scale):
        x = arguments.tensor("f", "x", x, dims=2, dtypes=(torch.float32,))
        n = arguments.integer("f", "n", n, least=0)
        return (
            x * n if arguments.boolean("f", "flag", flag) else x * arguments.number("f", "s", scale)
        )

    assert checked(torch.ones(2, 2), 3, True, 2.0).sum() == 12
    assert checked(torch.ones(2, 2), 3, False, 2.0).sum() == 8
    assert checked(torch.ones(4, 2), 5, True, 2.5).sum() == 40
