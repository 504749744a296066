// Messages between two ranks of a group: sends and receives with tags, in any order.
//
// Each ordered pair of ranks has a ring. A send goes on while there is room, a receive when its
// message comes; whoever waits moves all of them, and a thread does where nobody waits. A message
// that nobody asked for stays in the ring until someone waits for another from there.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "shm/group.h"

namespace torchyard::shm {

constexpr int kAnyRank = -1;

class Messages {
 public:
  explicit Messages(Group& group);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages();

  // Starts a send or a receive, and returns its number. `data` is used until it is done.
  uint64_t send(int to, int64_t tag, const void* data, size_t bytes);
  uint64_t receive(int from, int64_t tag, void* data, size_t bytes);

  // What became of an operation; `source` is whom a receive heard.
  struct Result {
    bool done = false;
    Outcome outcome;
    int source = kAnyRank;
  };

  // Returns at once.
  Result look(uint64_t number);
  // Waits until it is done, or fails. A failed operation is forgotten, as a waited one is.
  Result wait(uint64_t number, const Patience& patience);

  // Ends the thread; what is not done fails.
  void stop();

 private:
  struct Operation {
    uint64_t number;
    int peer;
    int64_t tag;
    std::byte* data;
    size_t bytes;
    Result result;
  };
  struct Arrived {
    int64_t tag;
    std::vector<std::byte> data;
  };
  // How far the message is that is being moved between this rank and a peer.
  struct Progress {
    std::deque<Operation*> sends;
    size_t sent = 0;
    bool header_sent = false;
    std::list<Arrived> unexpected;
    bool within = false;
    size_t bytes = 0;
    size_t taken = 0;
    int64_t tag = 0;
    Operation* target = nullptr;  // null: into `arriving`
    Arrived arriving;
  };

  void start();
  void move_all();
  void push(int peer);
  void pull(int peer);
  Operation* wanted(int peer, int64_t tag);
  bool wants(int peer) const;
  void finish(Operation& operation, int source, const Outcome& outcome);
  Operation* find(uint64_t number);
  void forget(uint64_t number);
  bool pending() const;
  void fail_all(const Outcome& outcome, uint64_t peers);
  void run();

  Group& group_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::list<Operation> operations_;
  std::list<Operation*> receives_;  // not begun, in the order of their calls
  std::vector<Progress> peers_;
  uint64_t next_ = 1;
  int waiters_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace torchyard::shm
