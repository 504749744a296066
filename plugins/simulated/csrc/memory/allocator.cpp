#include "memory/allocator.h"

#include "device/device.h"
#include "streams/capture.h"
#include "streams/stream.h"

#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace torchyard::simulated {

namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kSmallUnit = 512;  // as coarse as real allocators align
constexpr size_t kDefaultCapacity = size_t{8} << 30;
constexpr int kPoison = 0xFF;
constexpr c10::MempoolId_t kGeneralPool{0, 0};

size_t round_up(size_t bytes) {
  const size_t unit = bytes < kMegabyte ? kSmallUnit : kMegabyte;
  return (bytes + unit - 1) / unit * unit;
}

struct Block {
  size_t size = 0;
  size_t requested = 0;
  c10::Stream stream;
  c10::MempoolId_t pool;
  uint64_t capture = 0;
  std::map<Queue*, uint64_t> users;  // other streams, and how far they must get
};

// Device, stream, pool, size.
using FreeKey =
    std::tuple<c10::DeviceIndex, c10::StreamId, c10::CaptureId_t, c10::CaptureId_t, size_t>;

void delete_block(void* data);

void increase(StatArray& stat, size_t size, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  const auto kind = size < kMegabyte ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  stat[static_cast<size_t>(kind)].increase(amount);
}

void decrease(StatArray& stat, size_t size, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  const auto kind = size < kMegabyte ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  stat[static_cast<size_t>(kind)].decrease(amount);
}

template <typename Visit>
void for_each_stat(DeviceStats& stats, Visit visit) {
  for (StatArray* array : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                           &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                           &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (auto& stat : *array) {
      visit(stat);
    }
  }
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    DeviceLock lock(device_mutex());
    const c10::DeviceIndex device = current_device();
    const c10::Device where = device_of(device);
    if (bytes == 0) {
      return {nullptr, where};
    }
    Queue& queue = current_queue(device);
    const size_t size = round_up(bytes);
    const auto pool = queue.capture ? queue.capture->pool() : kGeneralPool;
    void* data = take_free(device, queue, pool, size);
    const bool reused = data != nullptr;
    if (!reused) {
      data = reserve(device, size);
    }
    blocks_.insert_or_assign(
        data,
        Block{size, bytes, queue.stream(), pool, queue.capture ? queue.capture->id() : 0, {}});
    auto& stats = stats_[device];
    increase(stats.allocation, size, 1);
    increase(stats.active, size, 1);
    increase(stats.allocated_bytes, size, size);
    increase(stats.active_bytes, size, size);
    increase(stats.requested_bytes, size, bytes);
    report(data, static_cast<int64_t>(size), device);
    poison(queue, data, size, reused);
    return {data, data, &delete_block, where};
  }

  void free(void* data) {
    DeviceLock lock(device_mutex());
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) {
      return;
    }
    Block& block = found->second;
    const c10::DeviceIndex device = block.stream.device_index();
    auto& stats = stats_[device];
    decrease(stats.allocation, block.size, 1);
    decrease(stats.allocated_bytes, block.size, block.size);
    decrease(stats.requested_bytes, block.size, block.requested);
    report(data, -static_cast<int64_t>(block.size), device);
    for (auto& [queue, position] : block.users) {
      position = queue->submitted();
    }
    waiting_.emplace(data, std::move(block));
    blocks_.erase(found);
    collect_waiting();
  }

  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    synchronize_device(current_device());
    default_copy_data(dest, src, count);
  }

  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t) override {
    DeviceLock lock(device_mutex());
    for (c10::DeviceIndex device = 0; device < kDeviceCount; ++device) {
      release_cached(device);
    }
  }

  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    DeviceLock lock(device_mutex());
    const auto found = blocks_.find(ptr.get());
    if (found != blocks_.end() && stream != found->second.stream) {
      found->second.users.emplace(&queue_of(stream), 0);
    }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    DeviceLock lock(device_mutex());
    return stats_[resolve_index(device)];
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    DeviceLock lock(device_mutex());
    auto& stats = stats_[resolve_index(device)];
    for_each_stat(stats, [](auto& stat) { stat.reset_accumulated(); });
    stats.num_alloc_retries = 0;
    stats.num_ooms = 0;
    stats.num_device_alloc = 0;
    stats.num_device_free = 0;
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    DeviceLock lock(device_mutex());
    for_each_stat(stats_[resolve_index(device)], [](auto& stat) { stat.reset_peak(); });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    DeviceLock lock(device_mutex());
    const c10::DeviceIndex index = resolve_index(device);
    const size_t reserved = reserved_bytes(index);
    const size_t capacity = capacity_[index];
    return {capacity > reserved ? capacity - reserved : 0, capacity};
  }

  c10::DeviceIndex owner(const void* data) {
    DeviceLock lock(device_mutex());
    auto after = blocks_.upper_bound(const_cast<void*>(data));
    if (after == blocks_.begin()) {
      return -1;
    }
    const auto& [begin, block] = *std::prev(after);
    const bool inside = static_cast<const char*>(data) < static_cast<char*>(begin) + block.size;
    return inside ? block.stream.device_index() : -1;
  }

  bool in_capture(const void* data, uint64_t capture) {
    DeviceLock lock(device_mutex());
    const auto found = blocks_.find(const_cast<void*>(data));
    return found != blocks_.end() && found->second.capture == capture;
  }

  void acquire(c10::MempoolId_t pool) {
    DeviceLock lock(device_mutex());
    ++pools_[pool];
  }

  void release(c10::MempoolId_t pool) {
    DeviceLock lock(device_mutex());
    if (--pools_[pool] > 0) {
      return;
    }
    pools_.erase(pool);
    // Its free blocks become ordinary ones; those still in use follow when they are freed.
    std::multimap<FreeKey, void*> kept;
    for (const auto& [key, data] : free_) {
      auto moved = key;
      if (c10::MempoolId_t{std::get<2>(key), std::get<3>(key)} == pool) {
        std::get<2>(moved) = kGeneralPool.first;
        std::get<3>(moved) = kGeneralPool.second;
      }
      kept.emplace(moved, data);
    }
    free_ = std::move(kept);
  }

  void set_capacity(c10::DeviceIndex device, size_t bytes) {
    DeviceLock lock(device_mutex());
    capacity_[resolve_index(device)] = bytes;
  }

 private:
  size_t reserved_bytes(c10::DeviceIndex device) const {
    const auto& all = stats_[device].reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)];
    return static_cast<size_t>(all.current);
  }

  void report(void* data, int64_t size, c10::DeviceIndex device) {
    const auto& stats = stats_[device];
    const auto all = static_cast<size_t>(StatType::AGGREGATE);
    c10::reportMemoryUsageToProfiler(
        data, size, static_cast<size_t>(stats.allocated_bytes[all].current),
        static_cast<size_t>(stats.reserved_bytes[all].current), device_of(device));
  }

  void* take_free(c10::DeviceIndex device, const Queue& queue, c10::MempoolId_t pool, size_t size) {
    collect_waiting();
    const auto found =
        free_.find(FreeKey{device, queue.stream().id(), pool.first, pool.second, size});
    if (found == free_.end()) {
      return nullptr;
    }
    void* const data = found->second;
    free_.erase(found);
    return data;
  }

  void* reserve(c10::DeviceIndex device, size_t size) {
    auto& stats = stats_[device];
    if (reserved_bytes(device) + size > capacity_[device]) {
      ++stats.num_alloc_retries;
      release_cached(device);
    }
    if (reserved_bytes(device) + size > capacity_[device]) {
      ++stats.num_ooms;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated:", static_cast<int>(device),
                       " out of memory: tried to allocate ", size, " bytes; ",
                       reserved_bytes(device), " of ", capacity_[device], " bytes are in use");
    }
    void* const data = c10::alloc_cpu(size);
    ++stats.num_device_alloc;
    increase(stats.segment, size, 1);
    increase(stats.reserved_bytes, size, size);
    return data;
  }

  // Waits for the device first: queued work addresses memory without owning it. During a capture
  // nothing is released, because waiting is not allowed then.
  void release_cached(c10::DeviceIndex device) {
    bool capturing = false;
    for_each_queue(device, [&](Queue& queue) { capturing = capturing || queue.capture; });
    if (capturing) {
      return;
    }
    for (c10::DeviceIndex any = 0; any < kDeviceCount; ++any) {
      for_each_queue(any, [](Queue& queue) {
        if (!queue.capture) {
          queue.drain();
        }
      });
    }
    collect_waiting();
    for (auto entry = free_.begin(); entry != free_.end();) {
      const auto& [key, data] = *entry;
      const c10::MempoolId_t pool{std::get<2>(key), std::get<3>(key)};
      if (std::get<0>(key) != device || pools_.count(pool) != 0) {
        ++entry;
        continue;
      }
      const size_t size = std::get<4>(key);
      c10::free_cpu(data);
      ++stats_[device].num_device_free;
      decrease(stats_[device].segment, size, 1);
      decrease(stats_[device].reserved_bytes, size, size);
      entry = free_.erase(entry);
    }
  }

  // Blocks whose other users are done go back to the stream they came from.
  void collect_waiting() {
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      Block& block = entry->second;
      bool busy = false;
      for (const auto& [queue, position] : block.users) {
        busy = busy || queue->completed() < position;
      }
      if (busy) {
        ++entry;
        continue;
      }
      const auto pool = pools_.count(block.pool) != 0 ? block.pool : kGeneralPool;
      const c10::DeviceIndex device = block.stream.device_index();
      decrease(stats_[device].active, block.size, 1);
      decrease(stats_[device].active_bytes, block.size, block.size);
      free_.emplace(FreeKey{device, block.stream.id(), pool.first, pool.second, block.size},
                    entry->first);
      entry = waiting_.erase(entry);
    }
  }

  // Queued work of the stream may still read what a reused block held.
  static void poison(Queue& queue, void* data, size_t size, bool reused) {
    if (!reused || queue.capture || queue.idle()) {
      std::memset(data, kPoison, size);
    } else {
      queue.submit([data, size] { std::memset(data, kPoison, size); });
    }
  }

  std::map<void*, Block> blocks_;
  std::unordered_map<void*, Block> waiting_;
  std::multimap<FreeKey, void*> free_;
  std::map<c10::MempoolId_t, int> pools_;
  std::array<DeviceStats, kDeviceCount> stats_;
  std::array<size_t, kDeviceCount> capacity_ = [] {
    std::array<size_t, kDeviceCount> all{};
    all.fill(kDefaultCapacity);
    return all;
  }();
};

// Leaked: tensors are freed after static destructors have run.
Allocator& allocator() {
  static Allocator* const instance = new Allocator();
  return *instance;
}

void delete_block(void* data) { allocator().free(data); }

}  // namespace

c10::DeviceAllocator* device_allocator() { return &allocator(); }

c10::DeviceIndex owner_of(const void* data) { return allocator().owner(data); }

bool allocated_in_capture(const void* data, uint64_t capture_id) {
  return allocator().in_capture(data, capture_id);
}

void acquire_pool(c10::MempoolId_t pool) { allocator().acquire(pool); }

void release_pool(c10::MempoolId_t pool) { allocator().release(pool); }

void set_capacity(c10::DeviceIndex device, size_t bytes) {
  allocator().set_capacity(device, bytes);
}

}  // namespace torchyard::simulated
