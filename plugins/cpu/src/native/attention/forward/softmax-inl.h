// Scores of one tile against panels of keys, and their softmax.
//
// Optimistic path: the largest score of the first panel that a row sees stays the row's reference;
// later scores are exponentiated straight out of the accumulators, with no pass for the maximum.
// Weights may then exceed 1, by any factor; when a strip's sums leave the safe range the strip is
// redone by `exact`, which moves the reference to the true maximum.
#pragma once

#include <cstdint>

#include "attention/tile/micro_kernel-inl.h"
#include "attention/tile/tile-inl.h"
#include "attention/tile/visibility-inl.h"

namespace torchyard {
namespace {

template <class Format, int kRows>
struct Softmax {
  using Isa = typename Format::Isa;
  using Vec = typename Format::Vec;
  using L = Layout<Format>;
  using Keys = TilePanel<kRows>;
  static constexpr int kVectors = Isa::kTileVectors;

  // Adds a panel's weights to `weight` and writes its probabilities, but not those of keys outside
  // of what is seen. All rows must have a reference.
  static TORCHYARD_INLINE void optimistic(const L& layout, const Tile<Format>& tile, float to_log2,
                                          const uint32_t* packed_keys, const Keys& keys,
                                          uint32_t* probabilities, float* weight) {
    if (!keys.masked) {
      weigh<false, kVectors>(layout, tile, to_log2, packed_keys, keys, probabilities, weight);
    } else if (kLeast < kVectors && fits_least(keys)) {
      weigh<true, kLeast>(layout, tile, to_log2, packed_keys, keys, probabilities, weight);
    } else {
      weigh<true, kVectors>(layout, tile, to_log2, packed_keys, keys, probabilities, weight);
    }
  }

  // The same, after it has given a reference to each row that has none and sees a key. `buffer` is
  // [kRows][kPanelKeys].
  static TORCHYARD_INLINE void first(const L& layout, const Tile<Format>& tile, float to_log2,
                                     const uint32_t* packed_keys, const Keys& keys,
                                     uint32_t* probabilities, float* weight, float* buffer) {
    if (kLeast < kVectors && keys.masked && fits_least(keys)) {
      weigh_first<kLeast>(layout, tile, to_log2, packed_keys, keys, probabilities, weight, buffer);
    } else {
      weigh_first<kVectors>(layout, tile, to_log2, packed_keys, keys, probabilities, weight,
                            buffer);
    }
  }

  // Scaled scores of a panel, masked ones -inf, to `out` [kRows][stride].
  static TORCHYARD_NOINLINE void scores(const L& layout, const Tile<Format>& tile, float to_log2,
                                        const uint32_t* packed_keys, const Keys& keys, float* out,
                                        int64_t stride) {
    const Vec factor = Isa::set1(to_log2);
    const Vec invisible = Isa::set1(kMinusInfinity);
#pragma GCC unroll 1
    for (int sub = 0; sub < L::kSubPanels; ++sub) {
      Vec score[kRows][kVectors];
      Products<Format, kRows>::scores(
          score, tile.query, packed_keys + sub * layout.key_words * L::kTileKeys, layout.key_words);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          Vec t = Isa::mul(score[r][j], factor);
          if (keys.masked) {
            t = Isa::select(Isa::mask(keys.word[r], sub * kVectors + j), t, invisible);
          }
          Isa::store(out + r * stride + sub * L::kTileKeys + j * Isa::kLanes, t);
        }
      }
    }
  }

  // The largest of a row of scores, NaN not counted.
  static float row_maximum(const float* row, int64_t columns) {
    Vec best = Isa::set1(kMinusInfinity);
    for (int64_t j = 0; j < columns; j += Isa::kLanes) {
      best = Isa::max_ignoring_nan(Isa::load(row + j), best);
    }
    return Isa::largest(best);
  }

  // Makes the reference of a row with a score of NaN NaN, since that is its greatest score. The
  // row's weights are NaN before and after.
  static TORCHYARD_NOINLINE void mark_nan(const Tile<Format>& tile, int r, const float* scores,
                                          int64_t columns) {
    for (int64_t j = 0; j < columns; ++j) {
      if (scores[j] != scores[j]) tile.reference[r] = scores[j];
    }
  }

  // Exponentiates `panels` panels of scores in `buffer` [kRows][stride] relative to the tile's
  // references; adds to `weight`, writes probabilities.
  static void exponentiate(const Tile<Format>& tile, const float* buffer, int64_t stride,
                           int panels, uint32_t* probabilities, float* weight) {
    for (int r = 0; r < kRows; ++r) {
      const float reference = tile.reference[r];
      // A row that has seen nothing has only scores of -inf: any finite reference gives its zeros.
      const Vec subtracted = Isa::set1(reference == kMinusInfinity ? 0.0f : reference);
      for (int sub = 0; sub < panels * L::kSubPanels; ++sub) {
        Vec row[kVectors];
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          const Vec t = Isa::load(buffer + r * stride + sub * L::kTileKeys + j * Isa::kLanes);
          row[j] = Isa::template exp2<typename Format::Exp2>(Isa::sub(t, subtracted));
        }
        finish_row(row, r, sub * L::kTileKeys, probabilities, weight);
      }
    }
  }

  // Computes a whole strip relative to the true running maximum, and rescales what the tile holds.
  static TORCHYARD_NOINLINE void exact(const L& layout, const Tile<Format>& tile, float to_log2,
                                       const uint32_t* const* packed_keys, const Keys* keys,
                                       int panels, uint32_t* probabilities, float* weight,
                                       float* buffer) {
    const int64_t stride = panels * kPanelKeys;
    for (int p = 0; p < panels; ++p) {
      scores(layout, tile, to_log2, packed_keys[p], keys[p], buffer + p * kPanelKeys, stride);
    }
    bool all = true;
    for (int r = 0; r < kRows; ++r) {
      const float before = tile.reference[r];
      const float found = row_maximum(buffer + r * stride, stride);
      if (found > before) {
        tile.reference[r] = found;
        rescale(layout, tile, r, before - found);
      }
      all = all && tile.reference[r] != kMinusInfinity;
    }
    *tile.referenced = all;
    exponentiate(tile, buffer, stride, panels, probabilities, weight);
  }

  // Adds a row of weights, of keys from `key` on, and writes its probabilities.
  template <int kWidth>
  static TORCHYARD_INLINE void finish_row(const Vec (&row)[kWidth], int r, int key,
                                          uint32_t* probabilities, float* weight) {
    Vec sum = row[0];
#pragma GCC unroll 4
    for (int j = 1; j < kWidth; ++j) sum = Isa::add(sum, row[j]);
    Isa::store(weight + r * Isa::kLanes, Isa::add(Isa::load(weight + r * Isa::kLanes), sum));
    Format::template store_probabilities<kWidth>(
        probabilities + r * L::kStripStride + key / Format::kPair, row);
  }

  // Multiplies what the tile holds of row `r` by 2^exponent.
  static void rescale(const L& layout, const Tile<Format>& tile, int r, float exponent) {
    const Vec factor = Isa::template exp2<Exp2Degree5>(Isa::set1(exponent));
    float* weight = tile.weight + r * Isa::kLanes;
    Isa::store(weight, Isa::mul(Isa::load(weight), factor));
    float* row = tile.sum_v + r * layout.value_columns;
    for (int64_t j = 0; j < layout.value_columns; j += Isa::kLanes) {
      Isa::store(row + j, Isa::mul(Isa::load(row + j), factor));
    }
  }

 private:
  static constexpr int kLeast = Products<Format, kRows>::kLeastVectors;
  static constexpr int kLeastKeys = kLeast * Isa::kLanes;

  static TORCHYARD_INLINE bool fits_least(const Keys& keys) {
    return keys.first / kLeastKeys == (keys.end - 1) / kLeastKeys;
  }

  // As `optimistic`, in steps of kWidth vectors of keys.
  template <bool kMasked, int kWidth>
  static TORCHYARD_NOINLINE void weigh(const L& layout, const Tile<Format>& tile, float to_log2,
                                       const uint32_t* packed_keys, const Keys& keys,
                                       uint32_t* probabilities, float* weight) {
    constexpr int kKeys = kWidth * Isa::kLanes;
    const Vec factor = Isa::set1(to_log2);
    const int end = kMasked ? keys.end : kPanelKeys;
#pragma GCC unroll 1
    for (int key = kMasked ? keys.first / kKeys * kKeys : 0; key < end; key += kKeys) {
      Vec score[kRows][kWidth];
      Products<Format, kRows>::scores(score, tile.query, columns(layout, packed_keys, key),
                                      layout.key_words);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const Vec minus_reference = Isa::set1(-tile.reference[r]);
        Vec row[kWidth];
#pragma GCC unroll 4
        for (int j = 0; j < kWidth; ++j) {
          row[j] = Isa::template exp2<typename Format::Exp2>(
              Isa::fma(score[r][j], factor, minus_reference));
          if (kMasked) {
            row[j] = Isa::keep(Isa::mask(keys.word[r], key / Isa::kLanes + j), row[j]);
          }
        }
        finish_row(row, r, key, probabilities, weight);
      }
    }
  }

  // As `first`, in steps of kWidth vectors of keys. The products pass through memory: what looks
  // for the largest would take registers from the accumulators.
  template <int kWidth>
  static TORCHYARD_NOINLINE void weigh_first(const L& layout, const Tile<Format>& tile,
                                             float to_log2, const uint32_t* packed_keys,
                                             const Keys& keys, uint32_t* probabilities,
                                             float* weight, float* buffer) {
    constexpr int kKeys = kWidth * Isa::kLanes;
    const Vec factor = Isa::set1(to_log2);
    const int begin = keys.masked ? keys.first / kKeys * kKeys : 0;
    const int end = keys.masked ? keys.end : kPanelKeys;
    products<kWidth>(layout, tile, packed_keys, begin, end, buffer);
    bool all = true;
    for (int r = 0; r < kRows; ++r) {
      const float* row = buffer + r * kPanelKeys;
      if (tile.reference[r] == kMinusInfinity) {
        tile.reference[r] = visible_maximum(row, factor, keys, r, begin, end);
        all = all && tile.reference[r] != kMinusInfinity;
      }
      const float reference = tile.reference[r];
      // A row that has seen nothing has only weights that are masked, or scores of -inf.
      const Vec minus_reference = Isa::set1(reference == kMinusInfinity ? 0.0f : -reference);
      for (int key = begin; key < end; key += kKeys) {
        Vec e[kWidth];
#pragma GCC unroll 4
        for (int j = 0; j < kWidth; ++j) {
          e[j] = Isa::template exp2<typename Format::Exp2>(
              Isa::fma(Isa::load(row + key + j * Isa::kLanes), factor, minus_reference));
          if (keys.masked) e[j] = Isa::keep(Isa::mask(keys.word[r], key / Isa::kLanes + j), e[j]);
        }
        finish_row(e, r, key, probabilities, weight);
      }
    }
    *tile.referenced = all;
  }

  // Writes the products of queries and keys [begin, end) to `out` [kRows][kPanelKeys].
  template <int kWidth>
  static TORCHYARD_NOINLINE void products(const L& layout, const Tile<Format>& tile,
                                          const uint32_t* packed_keys, int begin, int end,
                                          float* out) {
#pragma GCC unroll 1
    for (int key = begin; key < end; key += kWidth * Isa::kLanes) {
      Vec score[kRows][kWidth];
      Products<Format, kRows>::scores(score, tile.query, columns(layout, packed_keys, key),
                                      layout.key_words);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < kWidth; ++j) {
          Isa::store(out + r * kPanelKeys + key + j * Isa::kLanes, score[r][j]);
        }
      }
    }
  }

  // A panel's columns from one of its keys on.
  static TORCHYARD_INLINE const uint32_t* columns(const L& layout, const uint32_t* packed_keys,
                                                  int key) {
    return packed_keys + key / L::kTileKeys * layout.key_words * L::kTileKeys + key % L::kTileKeys;
  }

  // The largest of `products`, in units of log2, of the keys that row `r` sees; NaN not counted.
  static TORCHYARD_INLINE float visible_maximum(const float* products, Vec factor, const Keys& keys,
                                                int r, int begin, int end) {
    const Vec invisible = Isa::set1(kMinusInfinity);
    Vec best = invisible;
    for (int key = begin; key < end; key += Isa::kLanes) {
      Vec t = Isa::mul(Isa::load(products + key), factor);
      if (keys.masked) t = Isa::select(Isa::mask(keys.word[r], key / Isa::kLanes), t, invisible);
      best = Isa::max_ignoring_nan(t, best);
    }
    return Isa::largest(best);
  }
};

}  // namespace
}  // namespace torchyard
