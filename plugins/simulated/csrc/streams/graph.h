// Graph capture and replay for torch.accelerator.Graph.
#pragma once

#include <ATen/core/GraphImplInterface.h>

#include <memory>

namespace torchyard::simulated {

std::unique_ptr<at::GraphImplInterface> make_graph(const at::GraphImplArgs& args);

}  // namespace torchyard::simulated
