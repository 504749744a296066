#include "base/threads.h"

#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "base/aligned.h"
#include "base/large_pages.h"

namespace torchyard {

namespace {

// The threads of the OpenMP library that torch has loaded: calls body(data) on each of `threads`
// threads, which must be more than one, and waits for them; false, with nothing called, where the
// process has no such library. It is looked up on each call: torch may be imported after this
// module, and a look-up costs far less than waking a thread.
#if defined(_WIN32)

// What LLVM's and Intel's library want to know of the place of a call.
struct Place {
  int32_t reserved_1;
  int32_t flags;
  int32_t reserved_2;
  int32_t reserved_3;
  const char* source;
};
constexpr int32_t kOfThisInterface = 2;

using Task = void (*)(int32_t* thread, int32_t* number, void (*body)(void*), void* data);
using ForkCall = void (*)(Place*, int32_t arguments, Task, ...);
using PushThreads = void (*)(Place*, int32_t thread, int32_t threads);
using ThreadNumber = int32_t (*)(Place*);

void call_body(int32_t*, int32_t*, void (*body)(void*), void* data) { body(data); }

template <typename Function>
Function find(HMODULE library, const char* name) {
  return reinterpret_cast<Function>(reinterpret_cast<void*>(GetProcAddress(library, name)));
}

bool run_on_openmp(int threads, void (*body)(void*), void* data) {
  HMODULE library = GetModuleHandleA("libiomp5md.dll");
  if (library == nullptr) library = GetModuleHandleA("libomp.dll");
  if (library == nullptr) return false;
  const auto fork = find<ForkCall>(library, "__kmpc_fork_call");
  const auto push = find<PushThreads>(library, "__kmpc_push_num_threads");
  const auto number = find<ThreadNumber>(library, "__kmpc_global_thread_num");
  if (fork == nullptr || push == nullptr || number == nullptr) return false;
  static Place place = {0, kOfThisInterface, 0, 0, ";torchyard;run_on_openmp;0;0;;"};
  push(&place, number(&place), threads);
  fork(&place, 2, call_body, body, data);
  return true;
}

#else

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

// LLVM's library, which macOS has, exports GNU's names too.
bool run_on_openmp(int threads, void (*body)(void*), void* data) {
  const auto parallel = reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (parallel == nullptr) return false;
  parallel(body, data, static_cast<unsigned>(threads), 0);
  return true;
}

#endif

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

Scratch::~Scratch() { free_aligned(block_); }

std::byte* Scratch::acquire(size_t bytes) {
  if (bytes <= size_ && block_ != nullptr) return block_;
  free_aligned(block_);
  block_ = nullptr;
  size_ = 0;
  if (bytes > SIZE_MAX - kLargePage) return nullptr;
  const size_t alignment = bytes >= kLargePage ? kLargePage : kScratchAlignment;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = allocate_aligned(alignment, rounded == 0 ? alignment : rounded);
  if (block == nullptr) return nullptr;
  // Packed keys and values are read by strides of kilobytes: with 4 KiB pages the translation
  // buffer misses on most of them.
  const uintptr_t first = reinterpret_cast<uintptr_t>(block);
  Span span = {first, first + rounded};
  expect_writes(&span, 1);
  block_ = static_cast<std::byte*>(block);
  size_ = rounded == 0 ? alignment : rounded;
  return block_;
}

void Scratch::release() {
  if (size_ <= kKeptBytes) return;
  free_aligned(block_);
  block_ = nullptr;
  size_ = 0;
}

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace torchyard
