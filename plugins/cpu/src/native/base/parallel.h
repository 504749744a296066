// Runs one function on several threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace torchyard {

// Calls `body(data)` on up to `threads` threads, the caller among them, and returns when all calls
// have returned. The number of calls is at least one and at most `threads`; the work must therefore
// be drawn from a shared counter, never divided by a thread number. `body` must not throw.
//
// Uses the OpenMP pool that is already in the process where there is one (torch's: a second pool
// would fight with it for the cores), else threads of its own.
void run_on_threads(int threads, void (*body)(void*), void* data);

// Hints to the processor, and after a while to the scheduler, that the caller waits for another
// thread.
// `turn` counts the caller's waits so far.
void wait_a_little(int turn);

// Returns when other threads have brought `count` to `target`.
void wait_for(const std::atomic<int64_t>& count, int64_t target);

}  // namespace torchyard
