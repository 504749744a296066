#include "base/parallel.h"

#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/openmp.h"

namespace torchyard {

namespace {

constexpr int kSpinsBeforeYield = 256;

void run_on_own_threads(int threads, void (*body)(void*), void* data) {
  std::vector<std::thread> others;
  try {
    others.reserve(static_cast<size_t>(threads) - 1);
    for (int i = 1; i < threads; ++i) others.emplace_back(body, data);
  } catch (const std::bad_alloc&) {
    // Fewer threads do the same work.
  } catch (const std::system_error&) {
  }
  body(data);
  for (std::thread& other : others) other.join();
}

}  // namespace

void run_on_threads(int threads, void (*body)(void*), void* data) {
  if (threads <= 1) {
    body(data);
  } else if (!run_on_openmp(threads, body, data)) {
    run_on_own_threads(threads, body, data);
  }
}

void wait_a_little(int turn) {
  if (turn >= kSpinsBeforeYield) {
    std::this_thread::yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void wait_for(const std::atomic<int64_t>& count, int64_t target) {
  for (int turn = 0; count.load(std::memory_order_acquire) < target;) {
    wait_a_little(turn);
    if (turn < kSpinsBeforeYield) ++turn;
  }
}

}  // namespace torchyard
