// Rows that are fetched into the nearest cache while something else computes.
#pragma once

#include <cstdint>

#include "simd/format.h"

namespace torchyard {
namespace {

// Spreads the lines of some rows evenly over the steps of a phase; until it starts, of none.
//
// A processor tracks few lines on their way at a time, and loads that find no room wait with all
// that comes after them: two lines fetched at once cost more than the arithmetic between them.
template <class Rows>
class Fetches {
 public:
  // The first `count` of `rows`, of `bytes` bytes each, in `steps` steps.
  void start(const Rows rows, int count, int64_t bytes, int64_t steps) {
    rows_ = rows;
    count_ = count;
    bytes_ = bytes;
    row_ = -1;
    due_ = 0;
    const int64_t lines = count * ((bytes + kLine - 1) / kLine);
    rate_ = static_cast<uint32_t>((lines * kOne + steps - 1) / steps);
    next_row();
  }

  TORCHYARD_INLINE void step() {
    due_ += rate_;
    for (; due_ >= kOne && row_ < count_; due_ -= kOne) {
      __builtin_prefetch(at_, 0, 3);
      at_ += kLine;
      if (at_ >= end_) next_row();
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr uint32_t kOne = 1 << 16;  // a line, as due_ counts them

  Rows rows_{};
  int count_ = 0;
  int64_t bytes_ = 0;
  int row_ = 0;
  uint32_t due_ = 0;
  uint32_t rate_ = 0;  // per step
  const char* at_ = nullptr;
  const char* end_ = nullptr;  // of the row

  TORCHYARD_INLINE void next_row() {
    if (++row_ >= count_) return;
    at_ = reinterpret_cast<const char*>(rows_[row_]);
    end_ = at_ + bytes_;
  }
};

}  // namespace
}  // namespace torchyard
