// Linear kernel of float16 for processors with matrix tiles of bfloat16 (AMX-BF16).
//
// A float16 has 11 significant bits: it is the sum of its upper 8 and of the rest, each a bfloat16,
// with nothing left over. So a product of two float16 is four products of bfloat16, each exact in
// float32, and sums are what they are of float32 words, at a quarter of the tiles' speed.
//
// A value that is not finite has no such sum: an infinity times a rest of zero is NaN. Where a
// block of rows or a panel holds such a value, the two are multiplied by vector instructions.
#include <algorithm>

#include "base/isa/kernel_table.h"
#include "linear/item-inl.h"
#include "linear/linear.h"
#include "simd/format_bf16_pair_avx512.h"
#include "simd/tile_sums.h"

namespace torchyard {
namespace {

static_assert(kPanelColumns == 2 * kMatrixWords, "a panel is two tiles wide");

// Elements of depth that tiles take at once: pairs of them are a tile's words.
constexpr int kStep = 2 * kMatrixWords;
// Elements of depth whose words of a group of panels stay in the second-level cache.
constexpr int kChunk = 512;
static_assert(kChunk % kStep == 0, "a chunk is whole steps");

// Words of one row: of each step first those of upper bits, then those of rests. Behind the depth
// they are zero.
int64_t split_words(int64_t depth, int) { return (depth + kStep - 1) / kStep * kStep; }

using Float = FloatFormat<Avx512, F16, Exp2Degree5>;
using Vec = Avx512::Vec;

TORCHYARD_INLINE Vec load_words(const uint32_t* p) {
  return _mm512_castsi512_ps(_mm512_loadu_si512(p));
}
TORCHYARD_INLINE void store_words(uint32_t* p, Vec v) {
  _mm512_storeu_si512(p, _mm512_castps_si512(v));
}

// Elements that stay as they are, in pairs.
struct PairedHalves : Bf16PairFormat {
  using Element = F16;

  static TORCHYARD_INLINE Vec words(const F16* p, int n) {
    return Bf16PairFormat::words(reinterpret_cast<const Bf16*>(p), n);
  }
  static TORCHYARD_INLINE Vec value_words(const F16* row, const F16* next, int n) {
    return Bf16PairFormat::value_words(reinterpret_cast<const Bf16*>(row),
                                       reinterpret_cast<const Bf16*>(next), n);
  }
};

// Pairs of numbers as pairs of their upper bits and pairs of rests. Rests of what is not finite are
// no numbers.
struct Split {
  Vec upper, rests;
  bool finite;

  TORCHYARD_INLINE Split(Vec even, Vec odd) {
    const Vec even_upper = upper_of(even), odd_upper = upper_of(odd);
    const Vec even_rest = Avx512::sub(even, even_upper), odd_rest = Avx512::sub(odd, odd_upper);
    upper = joined(even_upper, odd_upper);
    rests = joined(even_rest, odd_rest);
    finite = _mm512_cmp_ps_mask(even_rest, odd_rest, _CMP_UNORD_Q) == 0;
  }

  // Of pairs of elements.
  static TORCHYARD_INLINE Split of(Vec pairs) {
    const __m512i both = _mm512_castps_si512(pairs);
    return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)),
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)))};
  }

  static TORCHYARD_INLINE Vec upper_of(Vec v) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static TORCHYARD_INLINE Vec lower_of(Vec v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16));
  }

 private:
  // Lower halves of both are zero.
  static TORCHYARD_INLINE Vec joined(Vec even, Vec odd) {
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16),
                                               _mm512_castps_si512(odd)));
  }
};

using Packer = LinearPacker<PairedHalves>;

struct SplitRows {
  // Whether all of a block's words are finite is kept behind them.
  static uint32_t& finite(const LinearArgs& args, const LinearBlock& block) {
    return block.words[split_words(args.depth, 1) * block.rows];
  }

  // x of a block as [steps][upper, rests][rows][kMatrixWords].
  static void pack(const LinearArgs& args, const LinearBlock& block) {
    bool finite = true;
    for (int r = 0; r < block.rows; ++r) {
      const F16* from = Packer::row_at(args, block, r);
      uint32_t* to = block.words + r * kMatrixWords;
      for (int64_t k = 0; k < args.depth; k += kStep, to += kStep * block.rows) {
        const Split split =
            Split::of(PairedHalves::words(from + k, Packer::least(args.depth - k, kStep)));
        store_words(to, split.upper);
        store_words(to + kMatrixWords * block.rows, split.rests);
        finite &= split.finite;
      }
    }
    SplitRows::finite(args, block) = finite;
  }
};

// A chunk of a panel, as [steps][upper, rests][kMatrixWords][kPanelColumns].
struct SplitPanel {
  static constexpr int kPlane = kMatrixWords * kPanelColumns;  // words

  // Whether all of it is finite.
  static bool pack(const LinearArgs& args, const LinearItem& item, int p, int64_t first,
                   int64_t count, uint32_t* out) {
    bool finite = true;
    for (int64_t k = first; k < first + count; k += kStep, out += 2 * kPlane) {
      finite &= args.weight.packed ? stored(args, item.first[p], k, out)
                                   : plain(args, item.blocks[0].batch, item.first[p], k, out);
    }
    return finite;
  }

 private:
  // Rows of 32 outputs, as the format `panels` has them.
  static bool stored(const LinearArgs& args, int64_t output, int64_t k, uint32_t* out) {
    const F16* from =
        static_cast<const F16*>(args.weight.data) + output * args.depth + k * kPanelColumns;
    const int64_t present = args.depth - k;
    bool finite = true;
    for (int w = 0; w < kMatrixWords; ++w) {
      for (int column = 0; column < kPanelColumns; column += Avx512::kLanes) {
        const F16* at = from + 2 * w * kPanelColumns + column;
        const auto row = [&](int i) {
          return 2 * w + i < present ? Avx512::load_first(at + i * kPanelColumns, Avx512::kLanes)
                                     : Avx512::zero();
        };
        finite &= store(Split(row(0), row(1)), out + w * kPanelColumns + column);
      }
    }
    return finite;
  }

  static bool plain(const LinearArgs& args, int64_t batch, int64_t output, int64_t k,
                    uint32_t* out) {
    alignas(64) uint32_t pairs[kPlane];
    const int present = Packer::least((args.depth - k + 1) / 2, kMatrixWords);
    Packer::panel(args, batch, output, k / 2, present, pairs);
    bool finite = true;
    for (int at = 0; at < kPlane; at += Avx512::kLanes) {
      const bool behind = at >= present * kPanelColumns;
      finite &= store(Split::of(behind ? Avx512::zero() : load_words(pairs + at)), out + at);
    }
    return finite;
  }

  static TORCHYARD_INLINE bool store(const Split& split, uint32_t* out) {
    store_words(out, split.upper);
    store_words(out + kPlane, split.rests);
    return split.finite;
  }
};

// Some steps of a block of rows times those of a panel, added to `c`, unless `fresh`.
struct SplitProducts {
  int rows;
  const uint32_t* x;
  const uint32_t* panel;
  int64_t steps;
  float* c;
  int64_t c_row;
  bool fresh;

  template <class Fetch>
  void by_tiles(Fetch fetch) const {
    rows > kMatrixRows ? tiles<2>(fetch) : tiles<1>(fetch);
  }

  void by_vectors() const {
    for (int r = 0; r < rows; ++r) {
      for (int column = 0; column < kPanelColumns; column += Avx512::kLanes) {
        float* const place = c + r * c_row + column;
        Vec sum = fresh ? Avx512::zero() : Avx512::load(place);
        for (int64_t step = 0; step < steps; ++step) {
          const uint32_t* left = x + step * kStep * rows + r * kMatrixWords;
          const uint32_t* right = panel + step * 2 * SplitPanel::kPlane + column;
          for (int w = 0; w < kMatrixWords; ++w, ++left, right += kPanelColumns) {
            const Vec x_upper = every(left[0]), x_rest = every(left[kMatrixWords * rows]);
            const Vec upper = load_words(right), rest = load_words(right + SplitPanel::kPlane);
            sum = Avx512::fma(even(x_upper, x_rest), even(upper, rest), sum);
            sum = Avx512::fma(odd(x_upper, x_rest), odd(upper, rest), sum);
          }
        }
        Avx512::store(place, sum);
      }
    }
  }

 private:
  template <int kTiles, class Fetch>
  TORCHYARD_NOINLINE void tiles(Fetch fetch) const {
    using Sums = TileSums<kTiles, 2>;
    constexpr int64_t kWord = sizeof(uint32_t);
    const int64_t plane = kMatrixWords * rows * kWord;
    constexpr int64_t kPlane = SplitPanel::kPlane * kWord;
    TilePlace left = {reinterpret_cast<const char*>(x), kTileRowBytes, kMatrixRows * kTileRowBytes};
    TilePlace right = {reinterpret_cast<const char*>(panel), kPanelColumns * kWord, kTileRowBytes};
    Sums::begin(c, c_row, fresh);
    for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
      for (int i = 0; i < kMatrixWords; ++i) fetch(step * kMatrixWords + i);
      const TilePlace next_left = {left.first + 2 * plane, left.stride, left.second};
      const TilePlace next_right = {right.first + 2 * kPlane, right.stride, right.second};
      Sums::ask_for_left(next_left);
      Sums::ask_for_right(next_right);
      // Each pair of factors shares one with the pair before.
      Sums::load_left(left);
      Sums::load_right(right);
      Sums::multiply();
      right.first += kPlane;
      Sums::ask_for_right({next_right.first + kPlane, right.stride, right.second});
      Sums::load_right(right);
      Sums::multiply();
      left.first += plane;
      Sums::ask_for_left({next_left.first + plane, left.stride, left.second});
      Sums::load_left(left);
      Sums::multiply();
      right.first -= kPlane;
      Sums::load_right(right);
      Sums::multiply();
      left.first += plane;
      right.first += 2 * kPlane;
    }
    Sums::end(c, c_row);
  }

  static TORCHYARD_INLINE Vec every(uint32_t word) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(word)));
  }
  static TORCHYARD_INLINE Vec even(Vec upper, Vec rest) {
    return whole(Split::lower_of(upper), Split::lower_of(rest));
  }
  static TORCHYARD_INLINE Vec odd(Vec upper, Vec rest) {
    return whole(Split::upper_of(upper), Split::upper_of(rest));
  }
  // What is not finite is its upper bits, whatever its rest.
  static TORCHYARD_INLINE Vec whole(Vec upper, Vec rest) {
    return _mm512_mask_add_ps(upper, _mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q), upper, rest);
  }
};

struct SplitItems {
  static constexpr int64_t kPanelWords = kChunk * kPanelColumns;
  static constexpr int64_t kRowFloats = kGroupPanels * kPanelColumns;
  // Two lines at each word: 32 rows of a plain weight, or as much of a packed one, are a chunk of a
  // panel.
  using FetchWeight = FetchRows<2, kChunk / 64>;
  // A line at each word: of the next block the part that this panel asks for.
  using FetchBlock = FetchRows<1>;
  static constexpr int64_t kPart = kChunk / 2 * FetchBlock::kLine;

  // A chunk of each panel of the group, then sums: of one block where it is done with before the
  // next begins. Tiles write whole blocks of them.
  static size_t words(int64_t rows, int64_t depth) {
    const int64_t kept = depth <= kChunk ? kTwo : rows;
    return static_cast<size_t>(kGroupPanels * kPanelWords + kept * kRowFloats);
  }

  static void run(const LinearArgs& args, const LinearItem& item) {
    const MatrixTiles tiles;
    float* const sums = reinterpret_cast<float*>(item.scratch + kGroupPanels * kPanelWords);
    const int columns = stored_columns(args, item);
    for (int64_t first = 0; first < args.depth || first == 0; first += kChunk) {
      const int64_t count = std::min<int64_t>(args.depth - first, kChunk);
      const bool last = first + count == args.depth;
      bool finite[kGroupPanels];
      for (int p = 0; p < item.panels; ++p) {
        finite[p] = SplitPanel::pack(args, item, p, first, count, item.scratch + p * kPanelWords);
      }
      for (int64_t i = 0; i < item.block_count; ++i) {
        const LinearBlock& block = item.blocks[i];
        if (last) fetch_tile<Float>(args, block, item.first[0], columns);
        float* const at = sums + (args.depth <= kChunk ? 0 : i * kTwo * kRowFloats);
        for (int p = 0; p < item.panels; ++p) {
          const SplitProducts products = {block.rows,
                                          block.words + first * block.rows,
                                          item.scratch + p * kPanelWords,
                                          (count + kStep - 1) / kStep,
                                          at + p * kPanelColumns,
                                          kRowFloats,
                                          first == 0};
          if (!finite[p] || SplitRows::finite(args, block) == 0) {
            products.by_vectors();
          } else if ((p + i) % item.block_count == 0) {
            products.by_tiles(fetch_later<F16, FetchWeight>(args, item, p, first + count, last));
          } else if (i + 1 < item.block_count) {
            const LinearBlock& next = item.blocks[i + 1];
            const uint32_t* const x = next.words + first * next.rows;
            products.by_tiles(
                FetchBlock{reinterpret_cast<const char*>(x) + p * kPart, FetchBlock::kRowBytes});
          } else {
            products.by_tiles(FetchNothing{});
          }
        }
        if (last) {
          const int64_t second = item.panels / args.halves() * kPanelColumns;
          finish_tile<Float>(args, block, at, kRowFloats, second, item.first[0], columns,
                             item.memory);
        }
      }
    }
  }
};

}  // namespace

// Few rows are multiplied by vectors as fast as their weight is read.
extern const LinearKernel* const linear_f16_avx512;

TORCHYARD_KERNELS(linear, LinearKernel, amx_float16,
                  {"linear_f16_32x32_amx", "amx", DType::kFloat16, isa::amx.required, kTwo, 1,
                   split_words, 0, SplitRows::pack, SplitItems::words, SplitItems::run, nullptr,
                   nullptr, nullptr, nullptr, &linear_f16_avx512})

}  // namespace torchyard
