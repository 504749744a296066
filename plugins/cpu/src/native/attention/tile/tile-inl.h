// What the softmax keeps for a tile of query rows between strips of keys.
#pragma once

#include <cstdint>

#include "attention/tile/layout.h"

namespace torchyard {
namespace {

// Scores are kept in units of log2: t = s * log2(e), so that 2^t is the exponential.
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;
constexpr float kMinusInfinity = -__builtin_inff();

// Largest sum per lane that a strip may reach above its reference before it is redone exactly.
// Products with values up to 2^64 then stay far inside float32.
constexpr float kOptimisticLimit = 0x1p30f;

// The state of kTileRows rows, in an item's scratch.
//   sum_v(r)    = sum over keys so far of 2^(t - reference(r)) * value
//   weight(r)   = sum over keys so far of 2^(t - reference(r)), lane by lane
template <class Format>
struct Tile {
  using Isa = typename Format::Isa;

  uint32_t* query;   // [key_words][kTileRows]
  float* sum_v;      // [kTileRows][value_columns]
  float* weight;     // [kTileRows][kLanes]
  float* reference;  // [kTileRows]; -inf until the row has met a visible key
  bool* referenced;  // every row that exists has a reference

  static size_t bytes(const Layout<Format>& layout) {
    const size_t rows = Isa::kTileRows;
    const size_t words =
        rows * static_cast<size_t>(layout.key_words + layout.value_columns + Isa::kLanes + 1) +
        Isa::kLanes + 1;
    return (words * sizeof(float) + 63) / 64 * 64;
  }

  Tile(const Layout<Format>& layout, std::byte* at) {
    const int64_t rows = Isa::kTileRows;
    sum_v = reinterpret_cast<float*>(at);
    weight = sum_v + rows * layout.value_columns;
    query = reinterpret_cast<uint32_t*>(weight + rows * Isa::kLanes);
    // One vector more than the query needs: it is written by whole vectors that overlap.
    reference = reinterpret_cast<float*>(query + rows * layout.key_words + Isa::kLanes);
    referenced = reinterpret_cast<bool*>(reference + rows);
  }
};

}  // namespace
}  // namespace torchyard
