#include "shm/messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "shm/futex.h"

namespace torchyard::shm {

namespace {

constexpr int64_t kMillisecond = 1'000'000;
// Whoever started an operation mostly waits for it: the thread leaves it so long.
constexpr auto kGrace = std::chrono::microseconds(300);
constexpr auto kWaitersPace = std::chrono::milliseconds(2);

size_t padded(size_t bytes) { return rounded(bytes, kLine); }

// Copies between linear memory and a ring, at a position of the stream.
void into_ring(std::byte* ring, uint64_t position, const void* from, size_t bytes) {
  const size_t start = position % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - start);
  if (first != 0) std::memcpy(ring + start, from, first);
  if (bytes != first) std::memcpy(ring, static_cast<const std::byte*>(from) + first, bytes - first);
}

void out_of_ring(const std::byte* ring, uint64_t position, void* to, size_t bytes) {
  const size_t start = position % kRingBytes;
  const size_t first = std::min(bytes, kRingBytes - start);
  if (first != 0) std::memcpy(to, ring + start, first);
  if (bytes != first) std::memcpy(static_cast<std::byte*>(to) + first, ring, bytes - first);
}

// Moved at once, so that the other side works on one piece while this side moves the next.
constexpr size_t kPiece = kRingBytes / 8;

}  // namespace

Messages::Messages(Group& group) : group_(group), peers_(static_cast<size_t>(group.ranks())) {}

Messages::~Messages() { stop(); }

void Messages::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (!group_.forked()) {
      group_.ring_bell(group_.rank());
    }
  }
  work_.notify_all();
  if (!thread_.joinable()) return;
  if (group_.forked()) {
    thread_.detach();  // it did not come along
  } else {
    thread_.join();
  }
}

uint64_t Messages::send(int to, int64_t tag, const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::byte* place = static_cast<std::byte*>(const_cast<void*>(data));
  operations_.push_back({next_++, to, tag, place, bytes, {}});
  const uint64_t number = operations_.back().number;
  peers_[static_cast<size_t>(to)].sends.push_back(&operations_.back());
  start();
  return number;
}

uint64_t Messages::receive(int from, int64_t tag, void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  operations_.push_back({next_++, from, tag, static_cast<std::byte*>(data), bytes, {}});
  const uint64_t number = operations_.back().number;
  receives_.push_back(&operations_.back());
  start();
  return number;
}

void Messages::start() {
  move_all();
  if (!pending()) return;
  if (!thread_.joinable()) thread_ = std::thread(&Messages::run, this);
  work_.notify_one();
}

Messages::Operation* Messages::find(uint64_t number) {
  for (Operation& operation : operations_) {
    if (operation.number == number) return &operation;
  }
  return nullptr;
}

void Messages::forget(uint64_t number) {
  operations_.remove_if([&](const Operation& operation) { return operation.number == number; });
}

bool Messages::pending() const {
  return std::any_of(operations_.begin(), operations_.end(),
                     [](const Operation& operation) { return !operation.result.done; });
}

void Messages::finish(Operation& operation, int source, const Outcome& outcome) {
  operation.result = {true, outcome, source};
  // Wakes threads of this process that wait for it.
  group_.ring_bell(group_.rank());
}

// Takes a receive that waits for a message from `peer` with `tag` off the list.
Messages::Operation* Messages::wanted(int peer, int64_t tag) {
  for (auto it = receives_.begin(); it != receives_.end(); ++it) {
    if (((*it)->peer == peer || (*it)->peer == kAnyRank) && (*it)->tag == tag) {
      Operation* found = *it;
      receives_.erase(it);
      return found;
    }
  }
  return nullptr;
}

bool Messages::wants(int peer) const {
  return std::any_of(receives_.begin(), receives_.end(), [&](const Operation* operation) {
    return operation->peer == peer || operation->peer == kAnyRank;
  });
}

void Messages::push(int peer) {
  Progress& progress = peers_[static_cast<size_t>(peer)];
  ChannelHeader& channel = group_.channel(group_.rank(), peer);
  std::byte* ring = group_.ring(group_.rank(), peer);
  while (!progress.sends.empty()) {
    Operation& operation = *progress.sends.front();
    const uint64_t written = channel.written.load(std::memory_order_relaxed);
    const size_t room = kRingBytes - (written - channel.taken.load(std::memory_order_acquire));
    if (!progress.header_sent) {
      if (room < kLine) return;
      const MessageHeader header{operation.bytes, operation.tag};
      into_ring(ring, written, &header, sizeof(header));
      progress.header_sent = true;
      progress.sent = 0;
      channel.written.store(written + kLine, std::memory_order_release);
      if (operation.bytes != 0) continue;
    } else {
      const size_t bytes = std::min({room, operation.bytes - progress.sent, kPiece});
      // Only the last piece of a message may end within a line.
      const size_t whole = bytes == operation.bytes - progress.sent ? bytes : bytes / kLine * kLine;
      if (whole == 0) return;
      into_ring(ring, written, operation.data + progress.sent, whole);
      progress.sent += whole;
      channel.written.store(written + padded(whole), std::memory_order_release);
    }
    group_.ring_bell(peer);
    if (progress.sent == operation.bytes) {
      progress.sends.pop_front();
      progress.header_sent = false;
      finish(operation, peer, {});
    }
  }
}

void Messages::pull(int peer) {
  Progress& progress = peers_[static_cast<size_t>(peer)];
  ChannelHeader& channel = group_.channel(peer, group_.rank());
  const std::byte* ring = group_.ring(peer, group_.rank());
  const auto deliver = [&](Operation& operation, size_t bytes) {
    if (operation.bytes == bytes) return true;
    Outcome mismatch{Code::kMismatch, uint64_t{1} << peer};
    mismatch.theirs[1] = bytes;
    mismatch.ours[1] = operation.bytes;
    finish(operation, peer, mismatch);
    return false;
  };
  // What came before anyone asked for it.
  for (auto it = progress.unexpected.begin(); it != progress.unexpected.end();) {
    Operation* operation = wanted(peer, it->tag);
    if (operation == nullptr) {
      ++it;
      continue;
    }
    if (deliver(*operation, it->data.size())) {
      if (!it->data.empty()) std::memcpy(operation->data, it->data.data(), it->data.size());
      finish(*operation, peer, {});
    }
    it = progress.unexpected.erase(it);
  }
  for (;;) {
    const uint64_t taken = channel.taken.load(std::memory_order_relaxed);
    const size_t there = channel.written.load(std::memory_order_acquire) - taken;
    if (!progress.within) {
      if (there < kLine || !wants(peer)) return;
      MessageHeader header;
      out_of_ring(ring, taken, &header, sizeof(header));
      progress.within = true;
      progress.bytes = header.bytes;
      progress.tag = header.tag;
      progress.taken = 0;
      progress.target = wanted(peer, header.tag);
      // A wrong size is reported, and the message taken out of the way.
      if (progress.target != nullptr && !deliver(*progress.target, header.bytes)) {
        progress.target = nullptr;
        progress.tag = INT64_MIN;
      }
      if (progress.target == nullptr) {
        progress.arriving = {progress.tag, std::vector<std::byte>(header.bytes)};
      }
      channel.taken.store(taken + kLine, std::memory_order_release);
    } else {
      const size_t left = progress.bytes - progress.taken;
      const size_t bytes = std::min({there, left, kPiece});
      const size_t whole = bytes == left ? bytes : bytes / kLine * kLine;
      if (whole == 0 && left != 0) return;
      std::byte* to =
          progress.target != nullptr ? progress.target->data : progress.arriving.data.data();
      out_of_ring(ring, taken, to + progress.taken, whole);
      progress.taken += whole;
      channel.taken.store(taken + padded(whole), std::memory_order_release);
    }
    group_.ring_bell(peer);
    if (progress.taken != progress.bytes) continue;
    progress.within = false;
    if (progress.target != nullptr) {
      finish(*progress.target, peer, {});
      progress.target = nullptr;
    } else if (progress.tag != INT64_MIN) {
      progress.unexpected.push_back(std::move(progress.arriving));
    }
  }
}

void Messages::move_all() {
  for (int peer = 0; peer < group_.ranks(); ++peer) {
    push(peer);
    pull(peer);
  }
}

void Messages::fail_all(const Outcome& outcome, uint64_t peers) {
  const auto concerned = [&](const Operation& operation) {
    return !operation.result.done &&
           (operation.peer == kAnyRank || (peers >> operation.peer & 1) != 0);
  };
  for (Operation& operation : operations_) {
    if (!concerned(operation)) continue;
    receives_.remove(&operation);
    for (Progress& progress : peers_) {
      const auto it = std::find(progress.sends.begin(), progress.sends.end(), &operation);
      if (it != progress.sends.end()) progress.sends.erase(it);
      if (progress.target == &operation) {
        progress.target = nullptr;
        progress.tag = INT64_MIN;
        progress.arriving.data.resize(progress.bytes);
      }
    }
    finish(operation, kAnyRank, outcome);
  }
}

Messages::Result Messages::look(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  move_all();
  Operation* operation = find(number);
  if (operation == nullptr) return {true, {}, kAnyRank};
  const Result result = operation->result;
  if (result.done) forget(number);
  return result;
}

Messages::Result Messages::wait(uint64_t number, const Patience& patience) {
  const int64_t start = now();
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiters_;
  Result result;
  for (;;) {
    const uint32_t heard = group_.bell(group_.rank()).rings.load();
    move_all();
    Operation* operation = find(number);
    result = operation == nullptr ? Result{true, {}, kAnyRank} : operation->result;
    if (result.done) break;
    uint64_t peer;
    if (operation->peer != kAnyRank) {
      peer = uint64_t{1} << operation->peer;
    } else {
      const uint64_t others = group_.others();
      const uint64_t left = group_.left() & others;
      // Another may still send, unless all have left.
      peer = left == others ? others : others & ~left;
    }
    lock.unlock();
    group_.listen(heard);
    lock.lock();
    if (group_.bell(group_.rank()).rings.load() != heard) continue;
    Outcome found = group_.obstacle(peer);
    if (found.ok() && patience.interrupted != nullptr) {
      lock.unlock();
      if (patience.interrupted()) found.code = Code::kInterrupted;
      lock.lock();
    }
    if (found.ok() && now() - start >= patience.milliseconds * kMillisecond) {
      found = {Code::kTimeout, peer};
    }
    if (found.ok()) continue;
    // It may have come just before its sender ended.
    move_all();
    operation = find(number);
    if (operation == nullptr || operation->result.done) continue;
    if (found.code != Code::kInterrupted) found = group_.fail(found);
    fail_all(found, peer);
  }
  --waiters_;
  forget(number);
  lock.unlock();
  work_.notify_one();
  return result;
}

void Messages::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (!pending()) {
      work_.wait(lock);
      if (!stopping_) work_.wait_for(lock, kGrace);
      continue;
    }
    if (waiters_ != 0) {
      work_.wait_for(lock, kWaitersPace);
      continue;
    }
    const uint32_t heard = group_.bell(group_.rank()).rings.load();
    move_all();
    if (!pending()) continue;
    lock.unlock();
    group_.listen(heard);
    lock.lock();
  }
}

}  // namespace torchyard::shm
