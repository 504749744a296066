// Fetches what a later row of a tile reads and writes while this one is computed.
//
// All at once would fill the queue of misses and then leave it empty until the row is done: memory
// would wait for the arithmetic and the arithmetic for memory. So each step asks for its share.
#pragma once

#include <cstdint>

#include "programs/program.h"

namespace torchyard {
namespace {

class ProgramStreams {
  static constexpr int64_t kLine = 64;

 public:
  // `steps` of the program ask for shares. Until it is called, there is nothing to fetch.
  void find(const Program& program, const ProgramPlace* operands, const ProgramPlace* results,
            int64_t steps) {
    for (int64_t i = 0; i < program.operand_count; ++i) {
      if (operands[i].column == 1) add(operands[i], program.operands[i]);
    }
    const int64_t read = count_;
    for (int64_t i = 0; i < program.result_count; ++i) {
      bool known = results[i].column != 1;
      for (int64_t j = 0; j < read && !known; ++j) known = streams_[j].data == results[i].data;
      if (!known) add(results[i], program.results[i].element);
    }
    steps_ = steps < 1 ? 1 : steps;
  }

  // Says what comes next: `columns` from `column` on.
  void aim(int64_t row, int64_t column, int64_t columns) {
    left_ = 0;
    at_ = 0;
    for (int64_t i = 0; i < count_ && columns > 0; ++i) {
      Stream& stream = streams_[i];
      stream.next = stream.data + row * stream.row + column * stream.bytes;
      stream.end = stream.next + columns * stream.bytes;
      left_ += (columns * stream.bytes + kLine - 1) / kLine;
    }
    share_ = (left_ + steps_ - 1) / steps_;
  }

  // A step's share, of each stream a line in turn, so that memory is asked for several pages at
  // once.
  inline __attribute__((always_inline)) void fetch_some() {
    int64_t share = share_ < left_ ? share_ : left_;
    left_ -= share;
    while (share > 0) {
      Stream& stream = streams_[at_];
      if (stream.next < stream.end) {
        __builtin_prefetch(stream.next);
        stream.next += kLine;
        --share;
      }
      if (++at_ == count_) at_ = 0;
    }
  }

  void fetch_rest() {
    while (left_ > 0) fetch_some();
  }

 private:
  struct Stream {
    const char* data;
    const char* next;
    const char* end;
    int64_t row;  // bytes
    int64_t bytes;
  };

  void add(const ProgramPlace& place, Element element) {
    const int64_t bytes = element_bytes(element);
    streams_[count_++] = {place.data, nullptr, nullptr, place.row * bytes, bytes};
  }

  Stream streams_[kMaxProgramPlaces];
  int64_t count_ = 0;
  int64_t at_ = 0;
  int64_t left_ = 0;  // lines
  int64_t share_ = 0;
  int64_t steps_ = 1;
};

}  // namespace
}  // namespace torchyard
