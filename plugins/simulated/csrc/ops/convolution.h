// Convolutions: torch sends those of foreign devices to operators of their own.
#pragma once

#include <torch/library.h>

namespace torchyard::simulated {

void register_convolution(torch::Library& aten);

}  // namespace torchyard::simulated
