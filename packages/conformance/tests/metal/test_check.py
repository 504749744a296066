"""Sources that are no Metal are refused by Clang's front end, and Metal is taken."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from torchyard_conformance.metal import (
    CompilationError,
    CompilerMissingError,
    UnsupportedSourceError,
    check,
)

BEGINNING = "#include <metal_stdlib>\nusing namespace metal;\n"
# What the shim, which is C++ without address spaces and with templates for Metal's functions, takes
# too: the body of a kernel with a buffer y of float, what is before the kernel, what Clang says.
FAULTS = {
    "a pointer without an address space": (
        "inline float first(const float* x) { return x[0]; }",
        "y[0] = first(y);",
        "line 3: x: expected device, constant, threadgroup or thread before",
    ),
    "a reference without an address space": (
        "inline void add(float& x) { x += 1.0f; }",
        "float a = 1.0f; add(a); y[0] = a;",
        "line 3: x: expected device, constant, threadgroup or thread before",
    ),
    "a member without an address space": (
        "struct Head { float* start; };",
        "y[0] = float(sizeof(Head));",
        "line 3: start: expected device",
    ),
    "a local pointer without an address space": (
        "",
        "float a = 1.0f; float* p = &a; y[0] = *p;",
        "line 4: p: expected device",
    ),
    "device memory given as threadgroup memory": (
        "inline float first(threadgroup const float* x) { return x[0]; }",
        "y[0] = first(y);",
        "line 4: no matching function for call to 'first'",
    ),
    "threadgroup memory kept as device memory": (
        "",
        "threadgroup float t[3]; device float* z = t; z[0] = 1.0f;",
        "line 4: cannot initialize a variable of type '__global float",
    ),
    "threadgroup memory of a function": (
        "inline float stored(float x) { threadgroup float t[1]; t[0] = x; return t[0]; }",
        "y[0] = stored(y[1]);",
        "line 3: non-kernel function variable cannot be declared in local address space",
    ),
    "a variable of the program": (
        "int counter = 0;",
        "y[0] = float(counter++);",
        "line 3: program scope variable must reside in constant address space",
    ),
    "a write to constant memory": (
        "constant float kHalf = 0.5f;",
        "kHalf = y[0];",
        "line 4: .*not assignable",
    ),
    "double": ("", "double a = y[0]; y[1] = float(a);", "line 4: .*double"),
    "a call that fits two overloads": (
        "",
        "y[0] = float(max(int(y[1]), 3u));",
        "line 4: call to 'max' is ambiguous",
    ),
    "a function that Metal lacks": ("", "y[0] = erf(y[1]);", "line 4: use of undeclared.*'erf'"),
    "lanes of 64 bits": (
        "",
        "y[0] = float(simd_sum(long(y[1])));",
        "line 4: call to 'simd_sum' is ambiguous",
    ),
    "a matrix of another type than its memory": (
        "",
        "simdgroup_matrix<half, 8, 8> a; simdgroup_load(a, y);",
        "line 4: no matching function for call to 'simdgroup_load'",
    ),
    "a pointer to a function": (
        "inline float same(float x) { return x; }",
        "float (*f)(float) = same; y[0] = f(y[1]);",
        "line 4: pointers to functions are not allowed",
    ),
    "C++17": (
        "",
        "if constexpr (sizeof(int) == 4) y[0] = 1.0f;",
        r"line 4: constexpr if is incompatible with C\+\+ standards before C\+\+17",
    ),
    "a name that is not declared": ("", "y[0] = x[0];", "line 4: use of undeclared identifier 'x'"),
}
SOUND = """
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
#pragma METAL fp math_mode(safe)
using namespace metal;
constant constexpr int kTile = 8;
struct Rows { device const half* start; long stride; };
inline Rows below(thread const Rows& rows, int by) {
  Rows next = rows;
  next = {rows.start + by * rows.stride, rows.stride};
  return next;
}
template <typename T, int N>
inline T sum_of(threadgroup const T* x) {
  T sum = T(0);
  for (int i = 0; i < N; i++) sum += x[i];
  return sum;
}
kernel void rows(device const half* x [[buffer(0)]], device float* y [[buffer(1)]],
                 device const bfloat* z [[buffer(2)]], constant long& stride [[buffer(3)]],
                 device atomic_uint* count [[buffer(4)]],
                 uint2 group [[threadgroup_position_in_grid]],
                 ushort lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[kTile * kTile], local[2];
  const Rows one = below(Rows{x, stride}, int(group.y));
  simdgroup_matrix<float, 8, 8> product = make_filled_simdgroup_matrix<float, 8, 8>(1.0);
  simdgroup_store(product, tile, kTile, ulong2(0, 0), false);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const float4 four = float4(float(one.start[0]), z[0], 1.0, 2.0h);
  const packed_float3 three = packed_float3(four.xyz);
  const half2 pair = half2(half(three.x), 1.0h);
  local[lane % 2] = sum_of<float, kTile>(tile) + max(four.y, float(pair.x)) + 1.0bf;
  atomic_fetch_add_explicit(count, as_type<uint>(four.w), memory_order_relaxed);
  if (simd_any(lane == 0)) y[group.x] = precise::exp(local[0]) + float(simd_sum(uint(lane)));
}
"""


def _source(before: str, body: str, parameters: str = "") -> str:
    kernel = f"kernel void f(device float* y [[buffer(0)]]{parameters}) {{ {body} }}"
    return f"{BEGINNING}{before}\n{kernel}\n"


def test_metal_is_taken_without_a_warning() -> None:
    assert check(SOUND) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_line(name: str) -> None:
    before, body, message = FAULTS[name]
    with pytest.raises(CompilationError, match=message):
        check(_source(before, body))


def test_a_variable_that_is_set_in_one_branch_is_warned_of() -> None:
    found = check(_source("", "float a; if (y[1] > 0.0f) a = 2.0f; y[0] = a;"))
    assert len(found) == 1
    assert found[0].startswith("line 4: variable 'a' is used uninitialized")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (", int i [[thread_position_in_grid]]", "expected one of uint, uint2, uint3.*got int"),
        (", uint2 i [[thread_index_in_simdgroup]]", "expected one of uint, ushort.*got uint2"),
        (", device float* z [[buffer(0)]]", "z: expected an index of its own.*of y"),
        (", device float* z [[buffer(31)]]", "with n from 0 to 30, got 31"),
    ],
)
def test_parameters_that_no_kernel_has_are_named(parameters: str, message: str) -> None:
    with pytest.raises(UnsupportedSourceError, match=message):
        check(_source("", "y[0] = 1.0f;", parameters))


@pytest.mark.parametrize(
    ("before", "body", "message"),
    [
        ("", "bool2 both; y[0] = float(both.x);", "line 4: bool2: .* no vectors of bool"),
        (
            (
                "template <typename T> kernel void g(device T* y [[buffer(0)]]) { y[0] = T(1); } "
                "template kernel void g<float>(device float* y [[buffer(0)]]);"
            ),
            "y[0] = 1.0f;",
            "line 3: g<float>: .* no kernels that are templates",
        ),
        ("texture2d<float> t;", "y[0] = 1.0f;", "textures"),
    ],
)
def test_what_opencl_lacks_is_named(before: str, body: str, message: str) -> None:
    with pytest.raises(UnsupportedSourceError, match=message):
        check(_source(before, body))


def test_a_source_without_a_kernel_is_refused() -> None:
    with pytest.raises(CompilationError, match="expected a kernel with parameters"):
        check(BEGINNING)


def test_without_clang_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ziglang" else found(name)
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissingError, match=r"none is on the path.*conformance\[metal\]"):
        check(SOUND)


def test_a_clang_that_does_not_take_the_trial_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ziglang" else found(name)
    )
    broken = tmp_path / "clang"
    broken.write_text("#!/bin/sh\necho 'error: no such target' >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerMissingError, match="clang: error: no such target"):
        check(SOUND)
