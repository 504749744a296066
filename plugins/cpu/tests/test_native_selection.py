"""Which kernel each processor gets, and what the native module refuses."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard_cpu import _isa, _native
from torchyard_cpu._tuning.tunables import frozen
from torchyard_cpu.attention import DTYPES

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
BF16 = AVX512 | {"avx512_bf16"}
AMX = BF16 | {"amx_tile", "amx_bf16"}

ISAS = {isa for _, _, isa, _ in _native.kernels()}
on_x86 = pytest.mark.skipif("avx2" not in ISAS, reason="x86 kernels are built for x86 only")
on_arm = pytest.mark.skipif("neon" not in ISAS, reason="Arm kernels are built for Arm only")


@on_x86
@pytest.mark.parametrize(
    ("dtype", "features", "expected"),
    [
        ("bfloat16", AMX, "attention_forward_bf16_16x64_amx"),
        ("bfloat16", AMX - {"amx_bf16"}, "attention_forward_bf16_6x64_avx512bf16"),
        ("bfloat16", BF16, "attention_forward_bf16_6x64_avx512bf16"),
        ("float16", AMX, "attention_forward_f16_6x64_avx512"),
        ("bfloat16", AVX512, "attention_forward_bf16_6x64_avx512"),
        ("bfloat16", AVX2, "attention_forward_bf16_6x16_avx2"),
        ("bfloat16", set(), "attention_forward_bf16_6x8_scalar"),
        ("float32", BF16, "attention_forward_f32_6x64_avx512"),
        ("float32", AVX512, "attention_forward_f32_6x64_avx512"),
        ("float32", AVX2, "attention_forward_f32_6x16_avx2"),
        ("float32", AVX2 - {"fma"}, "attention_forward_f32_6x8_scalar"),
        ("float32", AVX512 - {"avx512dq"}, "attention_forward_f32_6x16_avx2"),
        ("bfloat16", BF16 - {"avx512vl"}, "attention_forward_bf16_6x16_avx2"),
        ("float32", {"sse2", "asimd"}, "attention_forward_f32_6x8_scalar"),
        ("float16", BF16, "attention_forward_f16_6x64_avx512"),
        ("float16", AVX512, "attention_forward_f16_6x64_avx512"),
        ("float16", AVX2, "attention_forward_f16_6x16_avx2"),
        ("float16", AVX2 - {"f16c"}, "attention_forward_f16_6x8_scalar"),
        ("float64", BF16, None),
    ],
)
def test_a_processor_gets_the_best_kernel_that_it_can_run(
    dtype: str, features: set[str], expected: str | None
) -> None:
    assert _native.select_kernel(dtype, features, None) == expected


@on_x86
def test_an_instruction_set_can_be_asked_for() -> None:
    expected = "attention_forward_bf16_6x16_avx2"

    assert _native.select_kernel("bfloat16", BF16, "avx2") == expected
    assert _native.select_kernel("bfloat16", set(), "avx2") is None
    assert _native.select_kernel("float32", BF16, "avx512bf16") is None
    assert _native.select_kernel("float16", BF16, "avx512bf16") is None


@on_arm
@pytest.mark.parametrize(
    ("dtype", "features", "expected"),
    [
        ("bfloat16", {"asimd", "bf16"}, "attention_forward_bf16_6x16_neonbf16"),
        ("bfloat16", {"asimd"}, "attention_forward_bf16_6x16_neon"),
        ("bfloat16", {"bf16"}, "attention_forward_bf16_6x8_scalar"),
        ("float32", {"asimd", "bf16", "sve"}, "attention_forward_f32_6x16_neon"),
        ("float32", BF16, "attention_forward_f32_6x8_scalar"),
    ],
)
def test_an_arm_processor_gets_the_best_kernel_that_it_can_run(
    dtype: str, features: set[str], expected: str
) -> None:
    assert _native.select_kernel(dtype, features, None) == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (AMX, "amx"),
        (BF16, "avx512bf16"),
        (AVX512, "avx512"),
        ({"asimd", "bf16", "fp"}, "neonbf16"),
        ({"asimd", "fp"}, "neon"),
        ({"bf16"}, "scalar"),
        (set(), "scalar"),
    ],
)
def test_a_processor_is_named_after_the_best_that_it_can_run(
    features: set[str], expected: str
) -> None:
    assert _isa.best(frozenset(features)) == expected


def test_every_dtype_has_a_kernel_that_needs_nothing() -> None:
    for dtype in DTYPES:
        name = _native.select_kernel(dtype, (), None)
        assert name is not None
        assert name.endswith("_scalar")


def test_instruction_sets_need_what_their_kernels_need() -> None:
    for rows in (_native.kernels, _native.decode_kernels, _native.backward_kernels):
        table = {isa: frozenset(needed) for _, _, isa, needed in rows()}

        assert table.items() <= _isa.feature_sets().items()


def test_the_list_of_instruction_sets_is_the_native_one() -> None:
    rows = _native.instruction_sets()

    assert list(_isa.feature_sets()) == [name for name, _ in rows]
    assert rows[-1] == ("scalar", ())
    assert all(set(_isa.feature_sets()[name]) == set(features) for name, features in rows)


def test_better_instruction_sets_come_first() -> None:
    sets = list(_isa.feature_sets().values())

    assert not any(earlier < later for i, earlier in enumerate(sets) for later in sets[i + 1 :]), (
        "a set that needs more is after one that needs less"
    )


def test_kernels_come_best_first() -> None:
    order = list(_isa.feature_sets())
    for rows in (_native.kernels, _native.decode_kernels, _native.backward_kernels):
        places = [order.index(isa) for _, _, isa, _ in rows()]

        assert places == sorted(places)


def test_a_kernel_is_named_after_its_dtype_and_instruction_set() -> None:
    short = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
    for name, dtype, isa, _ in _native.kernels():
        assert name.startswith(f"attention_forward_{short[dtype]}_")
        assert name.endswith(f"_{isa}")


def arguments(**changed: Any) -> list[Any]:
    known = {
        "kernel": _native.select_kernel("float32", (), None),
        "dims": (0, 1, 1, 0, 0, 8, 8),
        "query": (0, 0, 0, 0),
        "key": (0, 0, 0, 0),
        "value": (0, 0, 0, 0),
        "out": (0, 0, 0, 0),
        "lse": 0,
        "scale": 1.0,
        "mask": None,
        "tunables": frozen("*"),
        "score": None,
        "max_scores": 0,
        "threads": 1,
        "poison": False,
    }
    return list((known | changed).values())


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"kernel": "nothing"}, ValueError, r"kernel: expected a name from kernels\(\), got 'noth"),
        ({"dims": (1, 2)}, TypeError, "dims: expected a tuple of 7 integers"),
        ({"dims": (1, 1, 1, 1, 1, 0, 8)}, ValueError, "head sizes of 1 to 256, got 0 and 8"),
        ({"dims": (1, 1, 1, 1, 1, 8, 257)}, ValueError, "head sizes of 1 to 256, got 8 and 257"),
        ({"dims": (1, 3, 2, 1, 1, 8, 8)}, ValueError, "a multiple of key heads, got 3 and 2"),
        ({"dims": (-1, 1, 1, 1, 1, 8, 8)}, ValueError, "dims: expected sizes of at least 0"),
        ({"query": [0, 0, 0, 0]}, TypeError, "query: expected a tuple of 4 integers"),
        ({"mask": (0, 8) + (1,) * 11}, ValueError, "block sizes of at least 1, got 0 x 8"),
        ({"mask": (8, 8, 2, 1) + (0,) * 9}, ValueError, "1 or 0 batches and 1 or 1 heads, got 2"),
        ({"tunables": (1, 64, 1)}, TypeError, "tunables: expected a tuple of 4 integers"),
        (
            {"tunables": (1, 96, 1, 1)},
            ValueError,
            "keys_per_split: expected a multiple of 64, got 96",
        ),
        ({"tunables": (0, 64, 1, 1)}, ValueError, "tunables: expected 1 to 16777216, got 0"),
        ({"score": (b"",)}, TypeError, "score: expected a tuple of 4"),
        ({"score": (b"", (1, 0, 0, 0), (1, 0, 0, 0), -1)}, ValueError, "steps within counts"),
        ({"score": (b"", (0,) * 4, (0,) * 4, 0)}, ValueError, "steps within counts and slots"),
        ({"threads": 0}, ValueError, "threads: expected 1 to 1024, got 0"),
    ],
)
def test_a_wrong_argument_is_named(
    changed: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        _native.attention_forward(*arguments(**changed))


def test_a_wrong_number_of_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match="expected 14 arguments, got 2"):
        _native.attention_forward("a", "b")  # type: ignore[call-arg, arg-type]


def test_memory_that_cannot_be_had_is_a_memory_error() -> None:
    keys = 1 << 50
    with pytest.raises(MemoryError):
        _native.attention_forward(*arguments(dims=(1, 1, 1, 1, keys, 8, 8)))
