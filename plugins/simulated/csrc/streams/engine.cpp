#include "streams/engine.h"

#include "device/device.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace torchyard::simulated {

namespace {

std::atomic<bool> other_threads{false};

bool is_first_thread() noexcept {
  thread_local const bool first = getpid() == gettid();
  return first;
}

// A forked child has none of its parent's threads.
[[maybe_unused]] const int at_fork =
    pthread_atfork(nullptr, nullptr, [] { other_threads = false; });

}  // namespace

void note_thread() noexcept {
  if (!is_first_thread()) {
    other_threads.store(true, std::memory_order_relaxed);
  }
}

void settle_engine() {
  if (!other_threads) {
    return;
  }
  const c10::AutoGradMode enabled(true);
  for (c10::DeviceIndex index = 0; index < kDeviceCount; ++index) {
    auto x = at::ones({}, at::device(device_of(index)).dtype(at::kFloat));
    x.requires_grad_();
    x.mul(1).backward();
  }
}

}  // namespace torchyard::simulated
