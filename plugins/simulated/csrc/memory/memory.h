// Creating, resizing, viewing and copying tensors: the kernels a device cannot leave to a fallback.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torchyard::simulated {

at::Tensor new_tensor(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype,
                      c10::Device device);

// The zeros that torch makes for tangents that no operand has: marked, so that nothing reads them.
at::Tensor zeros_without_memory(at::IntArrayRef size, at::ScalarType dtype, c10::Device device);

// Change the size in bytes of a device storage, keeping the common prefix of its contents.
void resize_storage(const at::Storage& storage, size_t bytes);

// Give a device tensor this geometry, growing its storage when needed.
void resize_tensor(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride,
                   int64_t offset);

void register_memory_kernels(torch::Library& aten);

}  // namespace torchyard::simulated
