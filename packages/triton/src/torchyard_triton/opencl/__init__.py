"""Kernels run by Intel's OpenCL for the CPU, from the SPIR-V that Triton writes for Intel's GPUs.

A stand-in for such a GPU, for tests: the mathematics and the code generator are the real ones, and
threads run in sub-groups. It has no matrix instruction (``dpas``), no block loads in two dimensions
and none of a GPU's speed. Needs ``triton-xpu``, ``pyopencl`` and ``intel-opencl-rt``.
"""

from __future__ import annotations

from torchyard_triton.opencl._runner import run_on_opencl

__all__ = ["run_on_opencl"]
