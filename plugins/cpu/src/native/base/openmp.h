// The threads of the OpenMP library that torch has loaded.
#pragma once

namespace torchyard {

// Calls body(data) on each of `threads` threads, which must be more than one, and waits for them.
// False, with nothing called, where the process has no such library.
bool run_on_openmp(int threads, void (*body)(void*), void* data);

}  // namespace torchyard
