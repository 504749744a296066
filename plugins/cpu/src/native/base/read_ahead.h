// Which lines to ask memory for while a loop reads others, one after another.
#pragma once

#include <cstdint>

#include "base/isa/cpu_features.h"

namespace torchyard {
namespace {

// A place later in what is read. Where memory answers several pages sooner than one, a block is
// asked for by parts: a line of each, then the next line of each. All of it has been asked for when
// the loop gets there, in whatever order that reads it.
class ReadAhead {
 public:
  static constexpr int64_t kLine = 64;
  static constexpr int kLineBits = 10, kPartBits = 3;  // of the numbers of lines and parts
  static constexpr int64_t kBlock = kLine << kLineBits;
  static constexpr int64_t kWhole = int64_t{4} << 20;

  // Whether to ask by parts for a whole of so many bytes. What is smaller lies in a cache of the
  // processor's own when it is read again, and then whatever is asked for too far ahead is a loss.
  static bool by_parts(int64_t whole) { return whole >= kWhole && reads_in_parts(); }

  // `bytes`: how far ahead a single stream is asked for. `lead`: how many bytes ahead the places
  // that are given lie by themselves.
  ReadAhead(bool in_parts, int64_t bytes, int64_t lead = 0)
      : in_parts_(in_parts),
        distance_(!in_parts       ? bytes
                  : lead < kBlock ? kBlock - lead
                                  : 0) {}

  // Into the cache of the first level, or of the second.
  inline __attribute__((always_inline)) void first_level(const void* at) const {
    __builtin_prefetch(later(at), 0, 3);
  }
  inline __attribute__((always_inline)) void second_level(const void* at) const {
    __builtin_prefetch(later(at), 0, 2);
  }

  // What to ask for where the loop is at a place.
  inline __attribute__((always_inline)) const char* later(const void* at) const {
    const char* const place = static_cast<const char*>(at) + distance_;
    if (!in_parts_) return place;
    // The number of a line in its block, and turned, so that its lowest bits choose the part.
    constexpr uint64_t kNumber = kBlock - kLine;
    const uint64_t line = reinterpret_cast<uintptr_t>(at) & kNumber;
    const uint64_t turned = (line >> kPartBits | line << (kLineBits - kPartBits)) & kNumber;
    return place + static_cast<int64_t>(turned - line);
  }

 private:
  bool in_parts_;
  int64_t distance_;
};

}  // namespace
}  // namespace torchyard
