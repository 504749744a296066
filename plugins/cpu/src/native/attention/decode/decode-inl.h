// The decode kernel: a few rows against keys and values in place, without packing.
//
// Keys are met in chunks of one panel. Scores: kLanes keys at a time, each summed along D in a
// register of its own, then all registers summed into one vector of scores. Values: rows of values
// times probabilities, accumulated into the state, which stays in the first-level cache.
//
// While a phase computes, the rows of the phase after it are fetched, which the processor's own
// prefetcher does not know of: a line at a time and all the time, see Fetches. Wide elements of two
// chunks do not fit into the first-level cache; what does not is met in the second.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/decode/modified-inl.h"
#include "attention/decode/softmax-inl.h"
#include "attention/decode/state-inl.h"
#include "attention/tile/fetches-inl.h"
#include "attention/tile/rows_at-inl.h"
#include "attention/tile/tile-inl.h"
#include "simd/format.h"

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

  const ForwardArgs& args_;
  const DecodeJob& job_;
  // Addresses of the current keys, then of the next ones; and of the values.
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
  Fetches<Rows> fetches_;

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
    if (words != nullptr && !values_are_finite(values_at, keys)) {
      add_visible(values_at, words, present);
      return;
    }
    const int64_t tile_columns = int64_t{Isa::kTileVectors} * Isa::kLanes;
    const int64_t steps = (columns_ + tile_columns - 1) / tile_columns * job_.rows *
                          ((keys + Format::kPair - 1) / Format::kPair);
    fetches_.start(next, next_keys, bytes_of(args_.head_dim), steps);
    for (int64_t column = 0; column < columns_; column += tile_columns) {
      const int64_t vectors = (columns_ - column) / Isa::kLanes;
      for (int r = 0; r < job_.rows; r += kTileRows) {
        const int rows = job_.rows - r;
        if (rows >= 4) {
          values<4>(values_at, keys, r, column, vectors);
        } else if (rows == 3) {
          values<3>(values_at, keys, r, column, vectors);
        } else if (rows == 2) {
          values<2>(values_at, keys, r, column, vectors);
        } else {
          values<1>(values_at, keys, r, column, vectors);
        }
      }
    }
  }

  static int64_t bytes_of(int64_t elements) {
    return elements * static_cast<int64_t>(sizeof(Element));
  }

  // Writes raw scores of `keys` keys; the rest is unspecified.
  void scores(const Rows keys_at, const Rows values_at, int keys) {
    constexpr int kStep = Isa::kLanes * Format::kPair;
    const int64_t groups = (keys + Isa::kLanes - 1) / Isa::kLanes;
    const int64_t tiles = job_.rows / 4 + job_.rows % 4 / 2 + job_.rows % 2;
    const int64_t steps = groups * tiles * Isa::kLanes * ((args_.head_dim + kStep - 1) / kStep);
    fetches_.start(values_at, keys, bytes_of(args_.value_dim), steps);
    for (int group = 0; group < keys; group += Isa::kLanes) {
      if (group + Isa::kLanes <= keys) {
        group_scores<true>(keys_at, keys, group);
      } else {
        group_scores<false>(keys_at, keys, group);
      }
    }
  }

  template <bool kWhole>
  TORCHYARD_INLINE void group_scores(const Rows keys_at, int keys, int group) {
    int r = 0;
    for (; r + 4 <= job_.rows; r += 4) tile_scores<4, kWhole>(keys_at, keys, group, r);
    if (r + 2 <= job_.rows) {
      tile_scores<2, kWhole>(keys_at, keys, group, r);
      r += 2;
    }
    if (r < job_.rows) tile_scores<1, kWhole>(keys_at, keys, group, r);
  }

  // kWhole: all kLanes keys exist.
  template <int kRows, bool kWhole>
  TORCHYARD_NOINLINE void tile_scores(const Rows keys_at, int keys, int group, int r) {
    constexpr int kKeys = Isa::kLanes / kRows;
    // In registers, which what is stored cannot change.
    Fetches<Rows> fetches = fetches_;
    uint32_t* to = probabilities_ + r * kPanelKeys;
    const uint32_t* query = query_ + r * query_stride_;
    const int64_t stride = query_stride_;
    const int64_t dim = args_.head_dim;
    for (int i = group; i < group + Isa::kLanes; i += kKeys) {
      // A key that does not exist is read as the last one that does.
      const Element* row[kKeys];
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; ++k) row[k] = keys_at[kWhole || i + k < keys ? i + k : keys - 1];
      float lanes[Isa::kLanes];
      Isa::store(lanes, dots<kRows, kKeys>(row, query, stride, dim, fetches));
#pragma GCC unroll 4
      for (int q = 0; q < kRows; ++q) {
        __builtin_memcpy(to + q * kPanelKeys + i, lanes + q * kKeys, kKeys * sizeof(float));
      }
    }
    fetches_ = fetches;
  }

  // Lane q * kKeys + k is the product of row q and key k.
  template <int kRows, int kKeys>
  static TORCHYARD_INLINE Vec dots(const Element* const (&row)[kKeys], const uint32_t* query,
                                   int64_t stride, int64_t dim, Fetches<Rows>& fetches) {
    constexpr int kStep = Isa::kLanes * Format::kPair;
    Vec sum[kRows * kKeys];
#pragma GCC unroll 16
    for (int i = 0; i < kRows * kKeys; ++i) sum[i] = Isa::zero();
    int64_t d = 0;
    for (; d + kStep <= dim; d += kStep) {
      dot_step<kRows, kKeys>(sum, row, query, stride, d, kStep, fetches);
      query += Isa::kLanes;
    }
    if (d < dim) {
      dot_step<kRows, kKeys>(sum, row, query, stride, d, static_cast<int>(dim - d), fetches);
    }
    return Isa::lane_sums(sum);
  }

  template <int kRows, int kKeys>
  static TORCHYARD_INLINE void dot_step(Vec (&sum)[kRows * kKeys],
                                        const Element* const (&row)[kKeys], const uint32_t* query,
                                        int64_t stride, int64_t d, int count,
                                        Fetches<Rows>& fetches) {
    Vec left[kRows];
#pragma GCC unroll 4
    for (int q = 0; q < kRows; ++q) left[q] = Isa::load(query + q * stride);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      fetches.step();
      const Vec right = Format::words(row[k] + d, count);
#pragma GCC unroll 4
      for (int q = 0; q < kRows; ++q) {
        sum[q * kKeys + k] = Format::dot(sum[q * kKeys + k], left[q], right);
      }
    }
  }

  // sum(r .. r + kRows) += probabilities . values, in up to kTileVectors vectors of columns.
  template <int kRows>
  TORCHYARD_INLINE void values(const Rows at, int keys, int r, int64_t column, int64_t vectors) {
    if constexpr (Isa::kTileVectors >= 4) {
      if (vectors >= 4) return columns<kRows, 4>(at, keys, r, column);
      if (vectors == 3) return columns<kRows, 3>(at, keys, r, column);
    }
    if (vectors >= 2) return columns<kRows, 2>(at, keys, r, column);
    columns<kRows, 1>(at, keys, r, column);
  }

  template <int kRows, int kVectors>
  TORCHYARD_NOINLINE void columns(const Rows at, int keys, int r, int64_t column) {
    const int64_t left = args_.value_dim - column;
    constexpr int64_t kWidth = int64_t{kVectors} * Isa::kLanes;
    float* sum = sum_ + r * columns_ + column;
    const uint32_t* probabilities = probabilities_ + r * kPanelKeys;
    if (left >= kWidth) {
      add<kRows, kVectors, true>(at, keys, column, sum, probabilities, left);
    } else {
      add<kRows, kVectors, false>(at, keys, column, sum, probabilities, left);
    }
  }

  template <int kRows, int kVectors, bool kWhole>
  TORCHYARD_INLINE void add(const Rows at, int keys, int64_t column, float* out,
                            const uint32_t* probabilities, int64_t left) {
    constexpr bool kLines = Format::kPairsLines && kWhole && kVectors % 2 == 0;
    Vec sum[kRows][kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = Isa::load(out + i * columns_ + j * Isa::kLanes);
      if constexpr (kLines) {
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; j += 2) Format::paired(sum[i][j], sum[i][j + 1]);
      }
    }
    Fetches<Rows> fetches = fetches_;
    for (int key = 0; key < keys; key += Format::kPair) {
      const Element* first = at[key] + column;
      const Element* second = Format::kPair == 2 && key + 1 < keys ? at[key + 1] + column : nullptr;
      Vec value[kVectors];
      if constexpr (kLines) {
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; j += 2) {
          Format::paired_lines(first + j * Isa::kLanes,
                               second == nullptr ? nullptr : second + j * Isa::kLanes, value[j],
                               value[j + 1]);
        }
      } else {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          const int64_t rest = left - j * Isa::kLanes;
          const int n = kWhole || rest >= Isa::kLanes ? Isa::kLanes : static_cast<int>(rest);
          value[j] = Format::value_words(first + j * Isa::kLanes,
                                         second == nullptr ? nullptr : second + j * Isa::kLanes, n);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        fetches.step();
        const Vec weight =
            Isa::broadcast_word(probabilities + i * kPanelKeys + key / Format::kPair);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sum[i][j] = Format::dot(sum[i][j], weight, value[j]);
      }
    }
    fetches_ = fetches;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      if constexpr (kLines) {
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; j += 2) Format::unpaired(sum[i][j], sum[i][j + 1]);
      }
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
