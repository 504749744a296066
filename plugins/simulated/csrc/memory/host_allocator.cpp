#include "memory/host_allocator.h"

#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <map>
#include <mutex>

namespace torchyard::simulated {

namespace {

void delete_pinned(void* data);

// Copies in flight keep their host tensor alive, so a block whose last tensor is gone is idle and
// goes back to the system at once: there is no cache to empty and no event to wait for.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::kCPU);
    if (bytes == 0) {
      return {nullptr, cpu};
    }
    void* const data = c10::alloc_cpu(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.emplace(data, bytes);
    stats_.active_requests.increase(1);
    stats_.active_bytes.increase(bytes);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(bytes);
    ++stats_.num_host_alloc;
    return {data, data, &delete_pinned, cpu};
  }

  void free(void* data) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = blocks_.find(data);
      if (found == blocks_.end()) {
        return;
      }
      stats_.active_requests.decrease(1);
      stats_.active_bytes.decrease(found->second);
      stats_.allocations.decrease(1);
      stats_.allocated_bytes.decrease(found->second);
      ++stats_.num_host_free;
      blocks_.erase(found);
    }
    c10::free_cpu(data);
  }

  bool pinned(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = blocks_.upper_bound(const_cast<void*>(data));
    if (after == blocks_.begin()) {
      return false;
    }
    const auto& [begin, bytes] = *std::prev(after);
    return static_cast<const char*>(data) < static_cast<char*>(begin) + bytes;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &delete_pinned; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }

  bool record_event(void* data, void*, c10::Stream) override { return pinned(data); }

  void empty_cache() override {}

  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

  void reset_accumulated_stats() override {
    for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  }

  void reset_peak_stats() override {
    for_each_stat([](auto& stat) { stat.reset_peak(); });
  }

 private:
  template <typename Visit>
  void for_each_stat(Visit visit) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations,
                       &stats_.allocated_bytes}) {
      visit(*stat);
    }
  }

  std::mutex mutex_;
  std::map<void*, size_t> blocks_;
  at::HostStats stats_;
};

PinnedAllocator& allocator() {
  static PinnedAllocator* const instance = new PinnedAllocator();
  return *instance;
}

void delete_pinned(void* data) { allocator().free(data); }

}  // namespace

at::HostAllocator* host_allocator() { return &allocator(); }

bool is_pinned(const void* data) { return allocator().pinned(data); }

}  // namespace torchyard::simulated
