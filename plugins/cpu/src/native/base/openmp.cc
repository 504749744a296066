#include "base/openmp.h"

#include <cstdint>

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

// The library is looked up on each call: torch may be imported after this module, and a look-up
// costs far less than waking a thread.
namespace torchyard {

#if defined(_WIN32)

namespace {

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

}  // namespace

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

namespace {

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

}  // namespace

// LLVM's library, which macOS has, exports GNU's names too.
bool run_on_openmp(int threads, void (*body)(void*), void* data) {
  const auto parallel = reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (parallel == nullptr) return false;
  parallel(body, data, static_cast<unsigned>(threads), 0);
  return true;
}

#endif

}  // namespace torchyard
