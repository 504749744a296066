// Runs a score program over the scores of one chunk of keys, for the rows of a decode kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/decode/decode.h"
#include "attention/tile/score-inl.h"
#include "attention/tile/visibility-inl.h"
#include "simd/format.h"

namespace torchyard {
namespace {

// Replaces the raw scores of the chunk that begins at key `first` by modified ones, in natural
// units. `scores` is [rows][kPanelKeys], rows numbered as in DecodeJob; scores beyond the keys
// that exist are unspecified before and after. `words` as in DecodeSoftmax::soften, `memory` what
// ScoreTile needs.
template <class Format>
TORCHYARD_NOINLINE void modify(const ForwardArgs& args, const DecodeJob& job, int64_t first,
                               const uint64_t* words, uint64_t present, uint32_t* scores,
                               std::byte* memory) {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  constexpr int kRows = Isa::kTileRows;
  const Vec scale = Isa::set1(static_cast<float>(args.scale));
  const int64_t group = args.query_heads / args.key_heads;
  RowsJob rows = {};
  rows.batch = job.batch;
  rows.row_count = args.query_rows;
  for (int64_t h = 0; h < group; ++h) {
    rows.query_head = job.key_head * group + h;
    ScoreTile<Format> program(args, rows, memory);
    for (int64_t row = 0; row < args.query_rows; row += kRows) {
      TilePanel<kRows> keys = {first / kPanelKeys, words != nullptr || ~present != 0, {}};
      const int64_t at = h * args.query_rows + row;
      for (int64_t r = 0; r < kRows && row + r < args.query_rows; ++r) {
        keys.word[r] = words == nullptr ? present : words[at + r] & present;
      }
      program.begin(row, &keys, 1);
      for (int64_t r = 0; r < program.live(); ++r) {
        float raw[kPanelKeys];
        uint32_t* own = scores + (at + r) * kPanelKeys;
        for (int j = 0; j < kPanelKeys; j += Isa::kLanes) {
          Isa::store(raw + j, Isa::mul(Isa::load(own + j), scale));
        }
        const ValueSource modified = program.apply(r, raw, &keys);
        for (int j = 0; j < kPanelKeys / Isa::kLanes; ++j) {
          Isa::store(own + j * Isa::kLanes, ProgramSteps<Isa>::template get<Vec>(modified, j));
        }
      }
    }
  }
}

}  // namespace
}  // namespace torchyard
