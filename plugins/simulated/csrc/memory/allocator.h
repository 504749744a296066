// The caching device allocator: blocks belong to the stream they were allocated on.
//
// A freed block may be handed out again at once on its own stream, whose order makes that safe, and
// nowhere else. Memory used on another stream needs record_stream(), as on real devices. New memory
// is filled with 0xFF bytes (NaN), in stream order.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace torchyard::simulated {

c10::DeviceAllocator* device_allocator();

// The device that owns the memory at `data`, or -1.
c10::DeviceIndex owner_of(const void* data);
bool allocated_in_capture(const void* data, uint64_t capture_id);

// A graph's private pool: freed blocks of it are not reused by anyone else until it is released.
void acquire_pool(c10::MempoolId_t pool);
void release_pool(c10::MempoolId_t pool);

// The size of each device's memory in bytes. Lowering it below what is in use only fails later
// allocations.
void set_capacity(c10::DeviceIndex device, size_t bytes);

}  // namespace torchyard::simulated
