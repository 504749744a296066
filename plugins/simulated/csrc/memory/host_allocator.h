// Pinned host memory: page-aligned blocks that the device can copy from and to without waiting.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torchyard::simulated {

at::HostAllocator* host_allocator();

// True for any address inside a live pinned block.
bool is_pinned(const void* data);

}  // namespace torchyard::simulated
