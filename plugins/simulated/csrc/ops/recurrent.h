// Recurrent cells: torch asks foreign devices for fused ones, which no CPU kernel provides.
#pragma once

#include <torch/library.h>

namespace torchyard::simulated {

void register_recurrent_cells(torch::Library& aten);

}  // namespace torchyard::simulated
