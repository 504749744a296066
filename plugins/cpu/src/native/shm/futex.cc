#include "shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace torchyard::shm {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

void futex_wait(const void* word, uint32_t seen, int64_t nanoseconds) {
  const timespec limit = {static_cast<time_t>(nanoseconds / kSecond),
                          static_cast<long>(nanoseconds % kSecond)};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(const void* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

}  // namespace torchyard::shm
