// Putting one native kernel on a stream, or into the graph that the stream records.
#pragma once

#include "streams/stream.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace torchyard::simulated {

struct Operand {
  at::Tensor tensor;  // of the device, or a CPU tensor, which is passed through and kept alive
  bool written = false;
};

using Body = std::function<void(const std::vector<at::Tensor>& host)>;

// Run `body` later, in stream order, on CPU views of the operands.
void launch(Queue& queue, const char* name, std::vector<Operand> operands, Body body);

}  // namespace torchyard::simulated
