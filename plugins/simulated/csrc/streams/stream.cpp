#include "streams/stream.h"

#include "device/device.h"
#include "streams/capture.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <array>
#include <new>
#include <vector>

namespace torchyard::simulated {

namespace {

constexpr size_t kPoolSize = 32;

struct Streams {
  std::recursive_mutex mutex;
  std::array<std::vector<std::unique_ptr<Queue>>, kDeviceCount> queues;
  std::array<size_t, kDeviceCount> next{};

  Streams() {
    for (c10::DeviceIndex device = 0; device < kDeviceCount; ++device) {
      for (size_t id = 0; id <= kPoolSize; ++id) {
        queues[device].push_back(std::make_unique<Queue>(device, static_cast<c10::StreamId>(id)));
      }
    }
  }
};

// Leaked: tensors are freed after static destructors have run.
Streams& streams() {
  static Streams* const instance = [] {
    auto* created = new Streams();
    // A fork in the middle of someone's work would leave the child a lock nobody releases.
    pthread_atfork(
        [] { streams().mutex.lock(); }, [] { streams().mutex.unlock(); },
        // The child's only thread has another id than the owner of the lock: it cannot unlock.
        [] { new (&streams().mutex) std::recursive_mutex(); });
    return created;
  }();
  return *instance;
}

thread_local std::array<c10::StreamId, kDeviceCount> current_ids{};

void check_not_capturing(const Queue& queue, const char* operation) {
  if (queue.capture) {
    queue.capture->refuse(operation);
  }
}

}  // namespace

c10::Stream Queue::stream() const {
  return c10::Stream(c10::Stream::UNSAFE, device_of(device_), id_);
}

uint64_t Queue::submit(Work work) {
  pending_.push_back(std::move(work));
  return ++submitted_;
}

void Queue::run_until(uint64_t position) {
  while (completed_ < position && !pending_.empty()) {
    Work work = std::move(pending_.front());
    pending_.pop_front();
    // Counted as done even if it raises: the queue must not run it twice.
    struct Done {
      uint64_t& count;
      ~Done() { ++count; }
    } done{completed_};
    work();
  }
}

std::recursive_mutex& device_mutex() { return streams().mutex; }

Queue& queue_of(const c10::Stream& stream) {
  check_index(stream.device_index());
  auto& queues = streams().queues[stream.device_index()];
  TORCH_CHECK(stream.device_type() == kType && stream.id() >= 0 &&
                  static_cast<size_t>(stream.id()) < queues.size(),
              "stream: expected a stream of the simulated device, got ", stream);
  return *queues[static_cast<size_t>(stream.id())];
}

c10::Stream default_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::DEFAULT, device_of(resolve_index(device)));
}

c10::Stream pool_stream(c10::DeviceIndex device) {
  DeviceLock lock(device_mutex());
  const c10::DeviceIndex index = resolve_index(device);
  size_t& next = streams().next[index];
  const auto id = static_cast<c10::StreamId>(1 + next % kPoolSize);
  ++next;
  return c10::Stream(c10::Stream::UNSAFE, device_of(index), id);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve_index(device);
  return c10::Stream(c10::Stream::UNSAFE, device_of(index), current_ids[index]);
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  queue_of(stream);
  const c10::Stream previous = current_stream(stream.device_index());
  current_ids[stream.device_index()] = stream.id();
  return previous;
}

Queue& current_queue(c10::DeviceIndex device) { return queue_of(current_stream(device)); }

void synchronize_stream(const c10::Stream& stream) {
  DeviceLock lock(device_mutex());
  Queue& queue = queue_of(stream);
  check_not_capturing(queue, "synchronizing a stream");
  queue.drain();
}

void synchronize_device(c10::DeviceIndex device) {
  DeviceLock lock(device_mutex());
  for_each_queue(device,
                 [](Queue& queue) { check_not_capturing(queue, "synchronizing the device"); });
  for_each_queue(device, [](Queue& queue) { queue.drain(); });
}

bool query_stream(const c10::Stream& stream) {
  DeviceLock lock(device_mutex());
  Queue& queue = queue_of(stream);
  check_not_capturing(queue, "querying a stream");
  if (queue.idle()) {
    return true;
  }
  queue.run_until(queue.completed() + 1);
  return false;
}

void for_each_queue(c10::DeviceIndex device, const std::function<void(Queue&)>& visit) {
  for (auto& queue : streams().queues[resolve_index(device)]) {
    visit(*queue);
  }
}

}  // namespace torchyard::simulated
