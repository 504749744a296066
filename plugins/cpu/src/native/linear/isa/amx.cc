// Linear kernels for processors with matrix tiles of bfloat16 (AMX-BF16).
//
// A tile holds 16 words of each of 16 rows. With a panel of the format `panels` sums are rows of x
// times the panel, since a tile of the right factor reads 16 outputs of 16 words of depth, as the
// panel has them. A plain weight's rows are the left factor as they lie, and sums are turned.
//
// Rows beyond a block's hold whatever memory holds, and so do their sums, which are not read.
#include <cstring>

#include "base/isa/kernel_table.h"
#include "linear/item-inl.h"
#include "linear/linear.h"
#include "simd/format_bf16_pair_avx512.h"
#include "simd/tile_sums.h"

namespace torchyard {
namespace {

struct MatrixFormat : Bf16PairFormat {};

static_assert(kPanelColumns == 2 * kMatrixWords, "a panel is two tiles wide");

template <>
struct PanelProducts<MatrixFormat> {
  static constexpr int kRows = kTwo;
  static constexpr bool kWritesAll = true;

  template <class Fetch>
  static void run(int rows, const uint32_t* a, WordSource<Avx512> source, int64_t count, float* c,
                  int64_t c_row, bool fresh, Fetch fetch) {
    if (rows == 1) {
      // A row by itself is packed alike for both, and vectors keep more of memory in flight.
      panel_tiles<Bf16PairFormat, WordSource<Avx512>, 1, 1>(a, source, count, c, c_row, fresh,
                                                            fetch);
    } else if (rows > kMatrixRows) {
      products<2>(rows, a, source.words, count, c, c_row, fresh, fetch);
    } else {
      products<1>(rows, a, source.words, count, c, c_row, fresh, fetch);
    }
  }

 private:
  template <int kTiles, class Fetch>
  static TORCHYARD_NOINLINE void products(int rows, const uint32_t* x, const uint32_t* panel,
                                          int64_t count, float* c, int64_t c_row, bool fresh,
                                          Fetch fetch) {
    using Sums = TileSums<kTiles, 2>;
    constexpr int64_t kWord = sizeof(uint32_t);
    TilePlace left = {reinterpret_cast<const char*>(x), kTileRowBytes, kMatrixRows * kTileRowBytes};
    TilePlace right = {reinterpret_cast<const char*>(panel), kPanelColumns * kWord, kTileRowBytes};
    Sums::begin(c, c_row, fresh);
    int64_t w = 0;
    for (; w + kMatrixWords <= count; w += kMatrixWords) {
#pragma GCC unroll 16
      for (int step = 0; step < kMatrixWords; ++step) {
        if constexpr (std::is_same_v<Fetch, FetchAhead>) {
          fetch(panel + (w + step) * kPanelColumns);
        } else {
          fetch(w + step);
        }
      }
      const TilePlace left_now = left, right_now = right;
      left.first += kMatrixWords * rows * kWord;
      right.first += kMatrixWords * kPanelColumns * kWord;
      if constexpr (!std::is_same_v<Fetch, FetchAhead>) {
        Sums::ask_for_left(left);
        Sums::ask_for_right(right);
      }
      Sums::add(left_now, right_now);
    }
    if (w < count) {
      // Memory after a panel may hold NaN, which must not be multiplied, not even by zero.
      alignas(64) char end[kMatrixRows * kPanelColumns * kWord] = {};
      std::memcpy(end, right.first, static_cast<size_t>((count - w) * kPanelColumns * kWord));
      matrix_fence();
      right.first = end;
      Sums::add(left, right);
    }
    Sums::end(c, c_row);
  }
};

using MatrixItems = LinearItems<MatrixFormat>;

void run_item(const LinearArgs& args, const LinearItem& item) {
  // Which a row by itself does without.
  if (item.block_count == 1 && item.blocks[0].rows == 1) return MatrixItems::run(args, item);
  const MatrixTiles tiles;
  MatrixItems::run(args, item);
}

// Rows of a plain weight, in place, times few rows of x: a tile of outputs is read from the
// second-level cache, into which it was prefetched during the tile before.
struct MatrixDots {
  static constexpr int kMostRows = kTwo;
  using Packer = LinearPacker<MatrixFormat>;
  using Vec = Avx512::Vec;
  static constexpr int kLanes = Avx512::kLanes;
  static constexpr int kStep = kMatrixWords * MatrixFormat::kPair;  // elements of a tile's row

  static void run(const LinearArgs& args, const LinearBlock& block, int64_t first, int64_t last,
                  std::byte* memory) {
    const MatrixTiles tiles;
    alignas(64) float turned[kTwo * kTwo];  // [outputs][rows]
    alignas(64) float sums[2 * kTwo * kTwo];
    for (int64_t column = first; column < last; column += kTwo) {
      const int count = Packer::least(last - column, kTwo);
      for (int half = 0; half < args.halves(); ++half) {
        const int64_t output = half * args.columns() + column;
        block.rows > kMatrixRows ? tile<2>(args, block, output, count, turned)
                                 : tile<1>(args, block, output, count, turned);
        turn(turned, block.rows, sums + half * kTwo * kTwo);
      }
      finish_tile<MatrixFormat>(args, block, sums, kTwo, kTwo * kTwo, column, count, memory);
    }
  }

 private:
  template <int kRight>
  static TORCHYARD_NOINLINE void tile(const LinearArgs& args, const LinearBlock& block,
                                      int64_t output, int count, float* turned) {
    using Sums = TileSums<2, kRight>;
    constexpr int64_t kLine = 64;
    const int64_t row = args.weight.row * static_cast<int64_t>(sizeof(Bf16));
    const char* const weight =
        reinterpret_cast<const char*>(static_cast<const Bf16*>(args.weight.data) +
                                      block.batch * args.weight.batch + output * args.weight.row);
    const int64_t words_row = block.rows * static_cast<int64_t>(sizeof(uint32_t));
    TilePlace left = {weight, static_cast<size_t>(row), kMatrixRows * row};
    TilePlace right = {reinterpret_cast<const char*>(block.words), static_cast<size_t>(words_row),
                       kTileRowBytes};
    // Line by line of the rows of the tile that likely comes next.
    const char* later = weight + kTwo * row;
    const int64_t whole = args.weight_elements() * static_cast<int64_t>(sizeof(Bf16));
    const ReadAhead ahead(ReadAhead::by_parts(whole), 0, kTwo * row);
    const int64_t lines = args.depth / kStep;
    int64_t line = 0;
    Sums::begin(turned, kTwo, true);
    int64_t at = 0;
    // A row of the weight that does not exist may not be read.
    for (; count == kTwo && at + kStep <= args.depth; at += kStep) {
#pragma GCC unroll 8
      for (int i = 0; i < kTwo; ++i) {
        ahead.second_level(later + line * kLine);
        if (++line == lines) {
          line = 0;
          later += row;
        }
      }
      Sums::add(left, right);
      left.first += kLine;
      right.first += kMatrixWords * words_row;
    }
    for (; at < args.depth; at += kStep) {
      alignas(64) uint32_t left_end[kTwo * kMatrixWords] = {};
      alignas(64) uint32_t right_end[kMatrixWords * kTwo] = {};
      const int present = Packer::least(args.depth - at, kStep);
      for (int o = 0; o < count; ++o) {
        const Bf16* const from = reinterpret_cast<const Bf16*>(left.first + o * row);
        Avx512::store(left_end + o * kMatrixWords, MatrixFormat::words(from, present));
      }
      const int words = (present + 1) / MatrixFormat::kPair;
      for (int w = 0; w < words; ++w) {
        std::memcpy(right_end + w * kTwo, right.first + w * words_row,
                    static_cast<size_t>(words_row));
      }
      matrix_fence();
      Sums::add(
          {reinterpret_cast<const char*>(left_end), kTileRowBytes, kMatrixRows * kTileRowBytes},
          {reinterpret_cast<const char*>(right_end), kTwo * sizeof(uint32_t), kTileRowBytes});
      left.first += kLine;
      right.first += kMatrixWords * words_row;
    }
    Sums::end(turned, kTwo);
  }

  // From [outputs][rows] to [rows][outputs], both kTwo wide.
  static void turn(const float* from, int rows, float* to) {
    for (int row = 0; row < rows; row += kLanes) {
      for (int at = 0; at < kTwo; at += kLanes) {
        Vec square[kLanes];
#pragma GCC unroll 16
        for (int l = 0; l < kLanes; ++l) square[l] = Avx512::load(from + (at + l) * kTwo + row);
        Avx512::transpose(square);
#pragma GCC unroll 16
        for (int l = 0; l < kLanes; ++l) Avx512::store(to + (row + l) * kTwo + at, square[l]);
      }
    }
  }
};

}  // namespace

TORCHYARD_KERNELS(linear, LinearKernel, amx,
                  {"linear_bf16_32x32_amx", "amx", DType::kBFloat16, isa::amx.required, kTwo,
                   MatrixFormat::kPair, dot_words, MatrixDots::kMostRows,
                   LinearPacker<MatrixFormat>::dot_rows, MatrixItems::words, run_item, nullptr,
                   nullptr, LinearPacker<MatrixFormat>::rows, MatrixDots::run, nullptr})

}  // namespace torchyard
