// Events: positions in a stream's queue, with the host time at which the queue passed them.
#pragma once

#include "streams/stream.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace torchyard::simulated {

// `event` is torch's opaque slot: null until the first record creates an Event in it.
void record_event(void** event, const c10::Stream& stream, c10::EventFlag flag);
void destroy_event(void* event) noexcept;
void block_stream(void* event, const c10::Stream& stream);
// Runs one item when there is one, so that polling makes progress.
bool query_event(void* event);
void synchronize_event(void* event);
// Milliseconds between two completed events created with timing.
double elapsed_ms(void* start, void* end);

}  // namespace torchyard::simulated
