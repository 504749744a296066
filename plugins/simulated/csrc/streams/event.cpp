#include "streams/event.h"

#include "device/device.h"
#include "streams/capture.h"

#include <c10/util/Exception.h>

#include <chrono>

namespace torchyard::simulated {

namespace {

using Clock = std::chrono::steady_clock;

// What one call of record() left behind: shared with the queue, which outlives the event.
struct Mark {
  bool reached = false;
  Clock::time_point time;
};

struct Event {
  Queue* queue = nullptr;
  uint64_t position = 0;
  bool timing = false;
  std::shared_ptr<Mark> mark;
  std::shared_ptr<Capture> capture;
};

Event& get(void* event) {
  TORCH_CHECK(event != nullptr,
              "event: expected a recorded event, got one that was never recorded");
  return *static_cast<Event*>(event);
}

void check_not_captured(const Event& event, const char* operation) {
  if (event.capture && event.capture->active()) {
    event.capture->refuse(operation);
  }
  TORCH_CHECK(!event.capture, operation,
              ": the event was recorded in a graph capture and never happens");
}

}  // namespace

void record_event(void** event, const c10::Stream& stream, c10::EventFlag flag) {
  DeviceLock lock(device_mutex());
  if (*event == nullptr) {
    *event = new Event{};
  }
  Event& self = *static_cast<Event*>(*event);
  Queue& queue = queue_of(stream);
  self.queue = &queue;
  self.timing = flag == c10::EventFlag::BACKEND_DEFAULT;
  self.capture = queue.capture;
  if (self.capture) {
    self.position = queue.captured;
    return;
  }
  self.mark = std::make_shared<Mark>();
  self.position = queue.submit([mark = self.mark] {
    mark->time = Clock::now();
    mark->reached = true;
  });
}

void destroy_event(void* event) noexcept { delete static_cast<Event*>(event); }

void block_stream(void* event, const c10::Stream& stream) {
  if (event == nullptr) {
    return;  // never recorded: nothing to wait for
  }
  DeviceLock lock(device_mutex());
  Event& self = get(event);
  Queue& waiting = queue_of(stream);
  if (self.capture && self.capture->active()) {
    self.capture->join(waiting, *self.queue, self.position);
    return;
  }
  if (waiting.capture) {
    waiting.capture->refuse("waiting for an event recorded outside of the capture");
  }
  TORCH_CHECK(!self.capture, "wait: the event was recorded in a graph capture and never happens");
  if (self.mark->reached || &waiting == self.queue) {
    return;
  }
  waiting.submit([queue = self.queue, position = self.position] { queue->run_until(position); });
}

bool query_event(void* event) {
  if (event == nullptr) {
    return true;
  }
  DeviceLock lock(device_mutex());
  Event& self = get(event);
  check_not_captured(self, "querying an event");
  if (self.mark->reached) {
    return true;
  }
  self.queue->run_until(self.queue->completed() + 1);
  return false;
}

void synchronize_event(void* event) {
  if (event == nullptr) {
    return;
  }
  DeviceLock lock(device_mutex());
  Event& self = get(event);
  check_not_captured(self, "synchronizing an event");
  self.queue->run_until(self.position);
}

double elapsed_ms(void* start, void* end) {
  DeviceLock lock(device_mutex());
  Event& first = get(start);
  Event& last = get(end);
  check_not_captured(first, "timing an event");
  check_not_captured(last, "timing an event");
  TORCH_CHECK(first.timing && last.timing,
              "elapsed_time: expected two events created with enable_timing=True");
  TORCH_CHECK(first.mark->reached && last.mark->reached,
              "elapsed_time: expected two completed events; synchronize them first");
  return std::chrono::duration<double, std::milli>(last.mark->time - first.mark->time).count();
}

}  // namespace torchyard::simulated
