// The decode kernel: a few rows against keys and values where they lie.
//
// Keys are met in chunks of one panel. Scores: kLanes keys at a time, each summed along D in a
// register of its own, then all registers summed into one vector of scores. Values: rows of values
// times probabilities, accumulated into the state, which stays in the first-level cache.
//
// While a phase computes, rows that are needed later are fetched, a few lines at a time: a burst
// would fill the buffers that the phase's own loads need. Of narrow elements the other phase's next
// chunk is fetched, which the processor's own prefetcher does not know of. Of wide ones two chunks
// would not fit into the first-level cache, and the rows a little ahead are fetched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/decode_modified-inl.h"
#include "attention/decode_softmax-inl.h"
#include "attention/decode_state-inl.h"
#include "attention/format.h"
#include "attention/rows_at-inl.h"
#include "attention/tile-inl.h"

namespace torchyard {
namespace {

// RowsAt says where keys and values lie: StridedRows or PagedRows.
template <class Format, template <class> class RowsAt>
class Decode {
 public:
  using Isa = typename Format::Isa;
  using Element = typename Format::Element;
  using Vec = typename Format::Vec;
  using State = DecodeState<Format>;
  using Rows = RowsAt<Element>;

  static size_t scratch_bytes(const ForwardArgs& args) {
    return words_bytes(args) + ScoreTile<Format>::bytes(args);
  }

  static void split(const ForwardArgs& args, const DecodeJob& job) {
    Decode self(args, job);
    self.begin();
    for (int64_t key = job.first_key; key < job.end_key; key += kPanelKeys) self.chunk(key);
  }

 private:
  // Rows that share the loads of a chunk's values; more accumulators would not fit.
  static constexpr int kTileRows = 4;

  static constexpr bool kFetchesAhead = sizeof(Element) > 2;
  static constexpr int kAhead = 16;

  const ForwardArgs& args_;
  const DecodeJob& job_;
  // Where the keys lie that are met, and then those that come next; and the values.
  typename Rows::Buffer keys_at_;
  typename Rows::Buffer values_at_;
  int64_t columns_;
  int64_t query_stride_;
  uint32_t* query_;          // [rows][query_stride], zero beyond D
  uint32_t* probabilities_;  // [rows][kPanelKeys] words or scores
  float* sum_;
  float* weight_;
  float* reference_;
  std::byte* program_;  // what a score program works in
  DecodeSoftmax<Format> softmax_;

  Decode(const ForwardArgs& args, const DecodeJob& job)
      : args_(args),
        job_(job),
        columns_(State::columns_of(args)),
        query_stride_(query_stride(args)),
        query_(reinterpret_cast<uint32_t*>(job.scratch)),
        probabilities_(query_ + kMaxDecodeRows * query_stride_),
        sum_(job.state),
        weight_(job.state + job.rows * columns_),
        reference_(weight_ + job.rows),
        program_(job.scratch + words_bytes(args)),
        softmax_{args, probabilities_, sum_, columns_, weight_, reference_} {}

  // Of queries and probabilities.
  static size_t words_bytes(const ForwardArgs& args) {
    const size_t words = static_cast<size_t>(kMaxDecodeRows * query_stride(args)) +
                         size_t{kMaxDecodeRows} * kPanelKeys;
    return words * sizeof(uint32_t);
  }

  static int64_t query_stride(const ForwardArgs& args) {
    constexpr int64_t kStep = int64_t{Isa::kLanes} * Format::kPair;
    return (args.head_dim + kStep - 1) / kStep * Isa::kLanes;
  }
  // Starts to load a row of `size` elements into the caches.
  static TORCHYARD_INLINE void fetch(const Element* row, int64_t size) {
    const char* at = reinterpret_cast<const char*>(row);
    const int64_t bytes = size * static_cast<int64_t>(sizeof(Element));
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 3);
  }

  void begin() {
    constexpr int kStep = Isa::kLanes * Format::kPair;
    for (int r = 0; r < job_.rows; ++r) {
      const Element* row = query_row(r);
      for (int64_t i = 0; i < args_.head_dim; i += kStep) {
        const int64_t left = args_.head_dim - i;
        Isa::store(query_ + r * query_stride_ + i / Format::kPair,
                   Format::words(row + i, static_cast<int>(left < kStep ? left : kStep)));
      }
      weight_[r] = 0.0f;
      reference_[r] = kMinusInfinity;
    }
    for (int64_t j = 0; j < job_.rows * columns_; j += Isa::kLanes) {
      Isa::store(sum_ + j, Isa::zero());
    }
  }

  const Element* query_row(int r) const {
    const int64_t head =
        job_.key_head * (args_.query_heads / args_.key_heads) + r / args_.query_rows;
    return static_cast<const Element*>(args_.query.data) + job_.batch * args_.query.batch +
           head * args_.query.head + r % args_.query_rows * args_.query.row;
  }

  const uint64_t* panel_words(int64_t first) const {
    return job_.words + (first - job_.first_key) / kPanelKeys * kMaxDecodeRows;
  }

  bool panel_is_seen(int64_t first) const {
    uint64_t any = 0;
    for (int r = 0; r < job_.rows; ++r) any |= panel_words(first)[r];
    return any != 0;
  }

  void chunk(int64_t first) {
    const int64_t left = job_.end_key - first;
    const int keys = static_cast<int>(left < kPanelKeys ? left : kPanelKeys);
    const uint64_t present = keys == kPanelKeys ? ~uint64_t{0} : (uint64_t{1} << keys) - 1;
    const uint64_t* words = nullptr;
    if (job_.words != nullptr) {
      if (!panel_is_seen(first)) return;
      words = panel_words(first);
      uint64_t all = present;
      for (int r = 0; r < job_.rows; ++r) all &= words[r];
      if (all == present) words = nullptr;
    }
    const Rows values_at =
        Rows::place(args_, args_.value, job_.batch, job_.key_head, first, keys, &values_at_);
    scores(Rows::place(args_, args_.key, job_.batch, job_.key_head, first, keys, &keys_at_),
           values_at, keys);
    if (args_.score != nullptr) {
      modify<Format>(args_, job_, first, words, present, probabilities_, program_);
    }
    softmax_.soften(words, present, job_.rows, keys);
    // Keys that are met next, to be fetched while values are added.
    int next_keys = keys;
    Rows next{};
    if (left > kPanelKeys) {
      if (left - kPanelKeys < next_keys) next_keys = static_cast<int>(left - kPanelKeys);
      next = Rows::place(args_, args_.key, job_.batch, job_.key_head, first + kPanelKeys, next_keys,
                         &keys_at_);
    } else if (job_.next_key != nullptr) {
      next = Rows::from(args_, args_.key, static_cast<const Element*>(job_.next_key), &next_keys,
                        &keys_at_);
    } else {
      next_keys = 0;
    }
    if (job_.words != nullptr && left > kPanelKeys && !panel_is_seen(first + kPanelKeys)) {
      next_keys = 0;
    }
    if constexpr (kFetchesAhead) next_keys = keys;
    if (words != nullptr && !values_are_finite(values_at, keys)) {
      add_visible(values_at, words, present);
      return;
    }
    for (int64_t column = 0; column < columns_;
         column += int64_t{Isa::kTileVectors} * Isa::kLanes) {
      const int64_t vectors = (columns_ - column) / Isa::kLanes;
      for (int r = 0; r < job_.rows; r += kTileRows) {
        const int fetched = column == 0 && r == 0 ? next_keys : 0;
        const int rows = job_.rows - r;
        if (rows >= 4) {
          values<4>(values_at, keys, r, column, vectors, next, fetched);
        } else if (rows == 3) {
          values<3>(values_at, keys, r, column, vectors, next, fetched);
        } else if (rows == 2) {
          values<2>(values_at, keys, r, column, vectors, next, fetched);
        } else {
          values<1>(values_at, keys, r, column, vectors, next, fetched);
        }
      }
    }
  }

  // Writes raw scores of `keys` keys; what lies beyond them is unspecified.
  TORCHYARD_NOINLINE void scores(const Rows keys_at, const Rows values_at, int keys) {
    for (int group = 0; group < keys; group += Isa::kLanes) {
      int r = 0;
      for (; r + 4 <= job_.rows; r += 4) tile_scores<4>(keys_at, values_at, keys, group, r);
      if (r + 2 <= job_.rows) {
        tile_scores<2>(keys_at, values_at, keys, group, r);
        r += 2;
      }
      if (r < job_.rows) tile_scores<1>(keys_at, values_at, keys, group, r);
    }
  }

  template <int kRows>
  TORCHYARD_INLINE void tile_scores(const Rows keys_at, const Rows values_at, int keys, int group,
                                    int r) {
    constexpr int kKeys = Isa::kLanes / kRows;
    const bool whole = group + Isa::kLanes <= keys;
    for (int i = group; i < group + Isa::kLanes; i += kKeys) {
      // A key that does not exist is read as the last one that does.
      const Element* row[kKeys];
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; ++k) {
        const int64_t at = whole || i + k < keys ? i + k : keys - 1;
        row[k] = keys_at[at];
        if (r != 0) continue;
        if constexpr (kFetchesAhead) {
          fetch(keys_at.ahead(i + k, kAhead), args_.head_dim);
        } else {
          fetch(values_at[at], args_.value_dim);
        }
      }
      float lanes[Isa::kLanes];
      Isa::store(lanes, dots<kRows, kKeys>(row, query_ + r * query_stride_));
#pragma GCC unroll 4
      for (int q = 0; q < kRows; ++q) {
        __builtin_memcpy(probabilities_ + (r + q) * kPanelKeys + i, lanes + q * kKeys,
                         kKeys * sizeof(float));
      }
    }
  }

  // Lane q * kKeys + k is the product of row q and key k.
  template <int kRows, int kKeys>
  TORCHYARD_INLINE Vec dots(const Element* const (&row)[kKeys], const uint32_t* query) const {
    constexpr int kStep = Isa::kLanes * Format::kPair;
    Vec sum[kRows * kKeys];
#pragma GCC unroll 16
    for (int i = 0; i < kRows * kKeys; ++i) sum[i] = Isa::zero();
    int64_t d = 0;
    for (; d + kStep <= args_.head_dim; d += kStep) {
      dot_step<kRows, kKeys>(sum, row, query, d, kStep);
      query += Isa::kLanes;
    }
    if (d < args_.head_dim) {
      dot_step<kRows, kKeys>(sum, row, query, d, static_cast<int>(args_.head_dim - d));
    }
    return Isa::lane_sums(sum);
  }

  template <int kRows, int kKeys>
  TORCHYARD_INLINE void dot_step(Vec (&sum)[kRows * kKeys], const Element* const (&row)[kKeys],
                                 const uint32_t* query, int64_t d, int count) const {
    Vec left[kRows];
#pragma GCC unroll 4
    for (int q = 0; q < kRows; ++q) left[q] = Isa::load(query + q * query_stride_);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      const Vec right = Format::words(row[k] + d, count);
#pragma GCC unroll 4
      for (int q = 0; q < kRows; ++q) {
        sum[q * kKeys + k] = Format::dot(sum[q * kKeys + k], left[q], right);
      }
    }
  }

  // sum(r .. r + kRows) += probabilities . values, in up to kTileVectors vectors of columns.
  template <int kRows>
  TORCHYARD_INLINE void values(const Rows at, int keys, int r, int64_t column, int64_t vectors,
                               const Rows next, int fetched) {
    if constexpr (Isa::kTileVectors >= 4) {
      if (vectors >= 4) return columns<kRows, 4>(at, keys, r, column, next, fetched);
      if (vectors == 3) return columns<kRows, 3>(at, keys, r, column, next, fetched);
    }
    if (vectors >= 2) return columns<kRows, 2>(at, keys, r, column, next, fetched);
    columns<kRows, 1>(at, keys, r, column, next, fetched);
  }

  template <int kRows, int kVectors>
  TORCHYARD_NOINLINE void columns(const Rows at, int keys, int r, int64_t column, const Rows next,
                                  int fetched) {
    const int64_t left = args_.value_dim - column;
    constexpr int64_t kWidth = int64_t{kVectors} * Isa::kLanes;
    float* sum = sum_ + r * columns_ + column;
    const uint32_t* probabilities = probabilities_ + r * kPanelKeys;
    if (left >= kWidth) {
      add<kRows, kVectors, true>(at, keys, column, sum, probabilities, left, next, fetched);
    } else {
      add<kRows, kVectors, false>(at, keys, column, sum, probabilities, left, next, fetched);
    }
  }

  template <int kRows, int kVectors, bool kWhole>
  TORCHYARD_INLINE void add(const Rows at, int keys, int64_t column, float* out,
                            const uint32_t* probabilities, int64_t left, const Rows next,
                            int fetched) {
    Vec sum[kRows][kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = Isa::load(out + i * columns_ + j * Isa::kLanes);
    }
    for (int key = 0; key < keys; key += Format::kPair) {
      const Element* first = at[key] + column;
      const Element* second = Format::kPair == 2 && key + 1 < keys ? at[key + 1] + column : nullptr;
      for (int i = 0; i < Format::kPair && key + i < fetched; ++i) {
        if constexpr (kFetchesAhead) {
          fetch(at.ahead(key + i, kAhead), args_.value_dim);
        } else {
          fetch(next[key + i], args_.head_dim);
        }
      }
      Vec value[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        const int64_t rest = left - j * Isa::kLanes;
        const int n = kWhole || rest >= Isa::kLanes ? Isa::kLanes : static_cast<int>(rest);
        value[j] = Format::value_words(first + j * Isa::kLanes,
                                       second == nullptr ? nullptr : second + j * Isa::kLanes, n);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const Vec weight =
            Isa::broadcast_word(probabilities + i * kPanelKeys + key / Format::kPair);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sum[i][j] = Format::dot(sum[i][j], weight, value[j]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        Isa::store(out + i * columns_ + j * Isa::kLanes, sum[i][j]);
    }
  }

  bool values_are_finite(const Rows at, int keys) const {
    Vec most = Isa::zero();
    for (int key = 0; key < keys; ++key) {
      for (int64_t j = 0; j < args_.value_dim; j += Isa::kLanes) {
        const int64_t left = args_.value_dim - j;
        const int n = static_cast<int>(left < Isa::kLanes ? left : Isa::kLanes);
        most = Isa::magnitude_bits_max(most, Isa::load_first(at[key] + j, n));
      }
    }
    return Isa::largest_bits(most) < kInfinityBits;
  }

  // As add, where a hidden value is not finite: 0 * NaN is NaN, so only visible keys take part.
  TORCHYARD_NOINLINE void add_visible(const Rows at, const uint64_t* words, uint64_t present) {
    for (int r = 0; r < job_.rows; ++r) {
      for (uint64_t left = words[r] & present; left != 0; left &= left - 1) {
        const int key = __builtin_ctzll(left);
        const uint32_t word = probabilities_[r * kPanelKeys + key / Format::kPair];
        const Vec weight = Isa::set1(Format::unpack(word, key % Format::kPair));
        float* sum = sum_ + r * columns_;
        for (int64_t j = 0; j < columns_; j += Isa::kLanes) {
          const int64_t rest = args_.value_dim - j;
          const int n = static_cast<int>(rest < Isa::kLanes ? rest : Isa::kLanes);
          const Vec value = Isa::load_first(at[key] + j, n);
          Isa::store(sum + j, Isa::fma(weight, value, Isa::load(sum + j)));
        }
      }
    }
  }
};

}  // namespace
}  // namespace torchyard
