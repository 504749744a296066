// Kernels that torch.compile generated for this device: host code that runs as work of a stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace torchyard::simulated {

// Put a generated kernel on the current stream of its tensors' device, or into the graph that the
// stream records. `entry` is the address of `void (*)(const int64_t* words)`; the words are the
// addresses of the tensors' first elements, in order, and then `scalars`. `written` has one number
// for each tensor: 1 where the kernel writes it.
void launch_compiled(const std::string& name, int64_t entry, at::TensorList tensors,
                     at::IntArrayRef written, at::IntArrayRef scalars);

// How many generated kernels were launched since the process started.
int64_t compiled_launches();

}  // namespace torchyard::simulated
