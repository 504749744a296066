#include "streams/capture.h"

#include "memory/allocator.h"
#include "memory/host_view.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

namespace torchyard::simulated {

Capture::Capture(Queue& origin, uint64_t id, c10::MempoolId_t pool)
    : origin_(origin), id_(id), pool_(pool), members_{&origin} {}

void Capture::join(Queue& waiting, Queue& source, uint64_t position) {
  if (waiting.capture && waiting.capture.get() != this) {
    waiting.capture->refuse("waiting for an event of another capture");
  }
  if (!waiting.capture) {
    waiting.drain();  // what it did before is not recorded, and recorded work may read it
    waiting.capture = shared_from_this();
    waiting.captured = 1;  // even an empty fork has to be joined again
    waiting.joined = 0;
    members_.push_back(&waiting);
  }
  if (&waiting != &source) {
    source.joined = std::max(source.joined, position);
  }
}

void Capture::refuse(const std::string& operation) {
  const std::string reason =
      operation +
      " is illegal while a graph is being captured; do it before the capture or after it";
  if (refused_.empty()) {
    refused_ = reason;
  }
  TORCH_CHECK(false, reason);
}

void Capture::add(Queue& queue, Node node) {
  ++queue.captured;
  nodes_.push_back(std::move(node));
}

at::Storage Capture::traced_storage(const at::Storage& device_storage, bool written) {
  const void* const key = device_storage.data();
  const auto found = shadows_.find(key);
  if (found != shadows_.end()) {
    return found->second;
  }
  auto alias = alias_storage(device_storage);
  if (!written || key == nullptr || allocated_in_capture(key, id_)) {
    return alias;
  }
  at::Storage shadow(at::Storage::use_byte_size_t(), alias.nbytes(),
                     c10::GetCPUAllocator()->allocate(alias.nbytes()), c10::GetCPUAllocator(),
                     /*resizable=*/true);
  std::memcpy(shadow.mutable_data(), alias.data(), alias.nbytes());
  shadows_.emplace(key, shadow);
  return shadow;
}

void Capture::hold(const at::Storage& device_storage) {
  if (device_storage.data() != nullptr && !allocated_in_capture(device_storage.data(), id_)) {
    held_.emplace(device_storage.data(), device_storage);
  }
}

void Capture::finish() {
  active_ = false;
  std::string unjoined;
  for (Queue* member : members_) {
    if (member != &origin_ && member->joined < member->captured) {
      unjoined = std::to_string(member->stream().id());
    }
    member->capture.reset();
    member->captured = 0;
    member->joined = 0;
  }
  shadows_.clear();
  TORCH_CHECK(refused_.empty(), "graph capture: invalidated, because ", refused_);
  TORCH_CHECK(
      unjoined.empty(), "graph capture: stream ", unjoined,
      " was forked into the capture and never joined; record an event on it and wait for it on "
      "the capturing stream");
}

}  // namespace torchyard::simulated
