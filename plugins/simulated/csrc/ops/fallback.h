// Every operator without a kernel of its own runs on the host's CPU kernel.
//
// The CPU kernel sees the device's own strides, storages and aliasing, so views stay views and
// gradients of strided tensors are those of the CPU. It reads its inputs when it is called and
// publishes its results in stream order.
#pragma once

#include <ATen/core/stack.h>
#include <torch/library.h>

#include <cstdint>
#include <map>
#include <string>

namespace torchyard::simulated {

// Run one operator on the host, replacing its arguments on the stack with its results.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

void register_fallback(torch::Library& all);

// How often each operator ran on the host since the start or the last reset.
std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();

}  // namespace torchyard::simulated
