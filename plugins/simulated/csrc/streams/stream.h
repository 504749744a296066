// Streams: in-order queues of deferred host work.
//
// No thread runs them. Work on a stream runs as late as the ordering rules of streams and events
// allow: when its stream is synchronized, when an event behind it is waited for, or when a kernel
// of the same stream needs its results. A missing wait between two streams therefore shows up as a
// wrong value every time, not once in a while. A process may fork at any moment.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace torchyard::simulated {

class Capture;

using Work = std::function<void()>;

class Queue {
 public:
  Queue(c10::DeviceIndex device, c10::StreamId id) : device_(device), id_(id) {}

  c10::Stream stream() const;

  // Append one item; returns its position, counted from 1.
  uint64_t submit(Work work);
  // Run items in order until `position` has completed.
  void run_until(uint64_t position);
  void drain() { run_until(submitted_); }

  uint64_t submitted() const { return submitted_; }
  uint64_t completed() const { return completed_; }
  bool idle() const { return completed_ >= submitted_; }

  // The graph this stream records into, or null.
  std::shared_ptr<Capture> capture;
  // Of a stream that joined a capture of another: recorded work, and how much of it was waited for.
  uint64_t captured = 0;
  uint64_t joined = 0;

 private:
  c10::DeviceIndex device_;
  c10::StreamId id_;
  std::deque<Work> pending_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
};

// Guards every queue, event and capture of the process. No Python code ever runs under it.
std::recursive_mutex& device_mutex();
using DeviceLock = std::lock_guard<std::recursive_mutex>;

Queue& queue_of(const c10::Stream& stream);
c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream pool_stream(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
c10::Stream exchange_stream(const c10::Stream& stream);

// The queue of the current stream of `device`.
Queue& current_queue(c10::DeviceIndex device);

// Each of these raises while the stream (or any stream of the device) is being captured.
void synchronize_stream(const c10::Stream& stream);
void synchronize_device(c10::DeviceIndex device);
// Runs one item when there is one, so that polling makes progress; true when nothing was left.
bool query_stream(const c10::Stream& stream);

// Apply `visit` to every queue of the device. The caller holds the lock.
void for_each_queue(c10::DeviceIndex device, const std::function<void(Queue&)>& visit);

}  // namespace torchyard::simulated
