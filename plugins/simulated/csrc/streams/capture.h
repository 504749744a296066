// A graph being recorded: its nodes, its memory pool, and the shadow state it is traced on.
//
// Recording runs every operation once, so that shapes and intermediate indices are valid, but never
// on memory that existed before: the first write to such memory goes to a private copy, which later
// operations of the same recording read. Nothing recorded is visible outside until a replay.
#pragma once

#include "streams/stream.h"

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace torchyard::simulated {

struct Node {
  std::string name;
  Work run;
};

class Capture : public std::enable_shared_from_this<Capture> {
 public:
  Capture(Queue& origin, uint64_t id, c10::MempoolId_t pool);

  uint64_t id() const { return id_; }
  c10::MempoolId_t pool() const { return pool_; }
  bool active() const { return active_; }
  Queue& origin() const { return origin_; }

  // Make `waiting` wait for the recorded work of `source` up to `position`, pulling it into the
  // recording when it is not part of it yet.
  void join(Queue& waiting, Queue& source, uint64_t position);

  // Invalidate the recording and raise: the named operation has no meaning inside of one.
  [[noreturn]] void refuse(const std::string& operation);

  void add(Queue& queue, Node node);

  // The storage a traced operation uses in place of `device_storage`.
  at::Storage traced_storage(const at::Storage& device_storage, bool written);
  // Keep memory that the graph uses and does not own alive for its replays.
  void hold(const at::Storage& device_storage);

  // Leave the streams; raises when the recording was refused or left a stream unjoined.
  void finish();

  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  Queue& origin_;
  uint64_t id_;
  c10::MempoolId_t pool_;
  bool active_ = true;
  std::string refused_;
  std::vector<Queue*> members_;
  std::vector<Node> nodes_;
  std::unordered_map<const void*, at::Storage> shadows_;
  std::unordered_map<const void*, at::Storage> held_;
};

}  // namespace torchyard::simulated
