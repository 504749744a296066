// Sleeping until a word that processes share is changed.
#pragma once

#include <atomic>
#include <cstdint>

namespace torchyard::shm {

// Sleeps while the word holds `seen`, at most so long; may return early.
void futex_wait(const void* word, uint32_t seen, int64_t nanoseconds);

// Wakes everyone who sleeps on the word.
void futex_wake(const void* word);

// Nanoseconds of a clock that only goes forward.
int64_t now();

// Hints to the processor that its thread waits for another.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

}  // namespace torchyard::shm
