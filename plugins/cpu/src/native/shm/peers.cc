#include "shm/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace torchyard::shm {

uint64_t start_time(int64_t pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%lld/stat", static_cast<long long>(pid));
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[1024];
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  // The second field is the program's name, in brackets and with any characters; fields are counted
  // after its end.
  const char* field = std::strrchr(text, ')');
  if (field == nullptr || field[1] == '\0' || field[2] == 'Z' || field[2] == 'X') return 0;
  constexpr int kStateField = 3;
  constexpr int kStartField = 22;
  field += 2;
  for (int number = kStateField; number < kStartField && field != nullptr; ++number) {
    field = std::strchr(field, ' ');
    if (field != nullptr) ++field;
  }
  return field == nullptr ? 0 : std::strtoull(field, nullptr, 10);
}

Peers::~Peers() {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (handles_[rank] >= 0) close(handles_[rank]);
  }
}

void Peers::watch(int ranks, const int64_t* pids, const uint64_t* starts) {
  ranks_ = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    pids_[rank] = pids[rank];
    starts_[rank] = starts[rank];
#ifdef SYS_pidfd_open
    handles_[rank] = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pids[rank]), 0u));
#else
    handles_[rank] = -1;
#endif
    // The handle may be another process's that got the number since.
    if (start_time(pids[rank]) != starts[rank]) ended_ |= uint64_t{1} << rank;
  }
}

uint64_t Peers::ended() {
  pollfd polled[kMaxRanks];
  for (int rank = 0; rank < ranks_; ++rank) polled[rank] = {handles_[rank], POLLIN, 0};
  if (poll(polled, static_cast<nfds_t>(ranks_), 0) < 0) return ended_.load();
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool gone = handles_[rank] >= 0 ? (polled[rank].revents & POLLIN) != 0
                                          : start_time(pids_[rank]) != starts_[rank];
    if (gone) ended_ |= uint64_t{1} << rank;
  }
  return ended_.load();
}

}  // namespace torchyard::shm
