// Quantised weights for processors with matrix tiles of bfloat16 (AMX-BF16).
//
// A tile of the right factor reads pairs of bfloat16 as pairs-inl.h makes them of a panel's codes,
// and one of the left factor reads rows of x as they were made ready.
#include <cstring>

#include "base/isa/kernel_table.h"
#include "quantised/dots_avx512.h"
#include "quantised/pairs-inl.h"
#include "quantised/panel-inl.h"
#include "simd/tile_sums.h"

namespace torchyard {
namespace {

// Panels for which rows of x are read once: their pairs are half a megabyte.
constexpr int64_t kMatrixPanels = 4;

template <int kBits>
struct MatrixPanels {
  using Pairs = PairPanel<kBits>;
  static constexpr int64_t kWords = kPairDepth / 2;
  static constexpr int64_t kPairs = kWords * kQuantisedColumns;
  static constexpr int64_t kTileSums = kMatrixRows * kQuantisedColumns;
  static_assert(kWords % kMatrixWords == 0, "pairs are whole tiles");

  static int64_t tiles_of(int64_t rows) { return (rows + kMatrixRows - 1) / kMatrixRows; }
  static int64_t scratch_words(int64_t rows) {
    return kMatrixPanels * (kPairs + tiles_of(rows) * kTileSums);
  }

  // At least a tile's rows.
  static void run(const QuantisedArgs& args, const QuantisedRows& rows, int64_t first,
                  int64_t panels, std::byte* scratch) {
    const int64_t count = rows.end - rows.first;
    const int64_t tiles = tiles_of(count);
    uint32_t* pairs = reinterpret_cast<uint32_t*>(scratch);
    float* sums = reinterpret_cast<float*>(pairs + kMatrixPanels * kPairs);
    std::memset(sums, 0, static_cast<size_t>(panels * tiles * kTileSums) * sizeof(float));
    const MatrixTiles configured;
    for (int64_t depth = 0; depth < args.padded(); depth += kPairDepth) {
      const int64_t left = args.padded() - depth;
      const int64_t octets = (left < kPairDepth ? left : kPairDepth) / kQuantisedPad;
      const int64_t words = octets * kQuantisedPad / 2;
      const int64_t whole = (words + kMatrixWords - 1) / kMatrixWords * kMatrixWords;
      for (int64_t p = 0; p < panels; ++p) {
        uint32_t* to = pairs + p * kPairs;
        Pairs::turn(args, first + p, depth, octets, to);
        std::memset(to + words * kQuantisedColumns, 0,
                    static_cast<size_t>((whole - words) * kQuantisedColumns) * sizeof(uint32_t));
      }
      for (int64_t t = 0; t < tiles; t += 2) {
        for (int64_t p = 0; p < panels; ++p) {
          const Part part = {args, rows, first + p, depth, words, pairs + p * kPairs};
          float* to = sums + (p * tiles + t) * kTileSums;
          t + 1 < tiles ? add<2>(part, t, to) : add<1>(part, t, to);
        }
      }
    }
    for (int64_t p = 0; p < panels; ++p) {
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t row = t * kMatrixRows;
        const int64_t seen = row - first_row(rows, t);
        store_panel<Avx512>(args, rows, false, row, kMatrixRows - seen, first + p,
                            sums + (p * tiles + t) * kTileSums + seen * kQuantisedColumns);
      }
    }
  }

 private:
  // A part of the depth of a panel.
  struct Part {
    const QuantisedArgs& args;
    const QuantisedRows& rows;
    int64_t panel, depth, words;
    const uint32_t* pairs;
  };

  // A tile's first row: the last tile has rows of the one before, so that each row exists.
  static int64_t first_row(const QuantisedRows& rows, int64_t tile) {
    const int64_t row = tile * kMatrixRows, last = rows.end - rows.first - kMatrixRows;
    return row < last ? row : last;
  }

  // Adds a part's products to the sums of a tile of rows, or of two.
  template <int kTiles>
  static TORCHYARD_NOINLINE void add(const Part& part, int64_t tile, float* sums) {
    const QuantisedArgs& args = part.args;
    if (args.group != 0) return products<kTiles>(part, tile, sums, false);
    // Of codes, which are scaled after each part as the other kernels do.
    alignas(64) float codes[kTiles * kTileSums];
    products<kTiles>(part, tile, codes, true);
    QuantisedArgs scaled = args;
    // What the zeros add is the whole segment's: with its first part.
    if (part.depth % args.segment() != 0) scaled.zeros = nullptr;
    for (int r = 0; r < kTiles * kMatrixRows; ++r) {
      const int64_t row = first_row(part.rows, tile + r / kMatrixRows) + r % kMatrixRows;
      __m512 total[1][Pairs::kVectors];
      for (int v = 0; v < Pairs::kVectors; ++v) {
        total[0][v] = _mm512_load_ps(codes + r * kQuantisedColumns + v * 16);
      }
      const int64_t segments = args.segments();
      const int32_t* row_sums = part.rows.sums + row * segments + part.depth / args.segment();
      Pairs::Tile::template add<1, Pairs::kVectors>(scaled, total, {part.panel, row_sums, segments},
                                                    0, sums + r * kQuantisedColumns);
    }
  }

  template <int kTiles>
  static TORCHYARD_INLINE void products(const Part& part, int64_t tile, float* sums, bool fresh) {
    using Sums = TileSums<kTiles, 2>;
    const QuantisedRows& rows = part.rows;
    const int64_t row = first_row(rows, tile);
    const char* const x = reinterpret_cast<const char*>(rows.words) + row * rows.row_bytes +
                          part.depth * static_cast<int64_t>(sizeof(Bf16));
    const int64_t second = kTiles == 1 ? 0 : (first_row(rows, tile + 1) - row) * rows.row_bytes;
    constexpr int64_t kStep = kMatrixWords * kQuantisedColumns * sizeof(uint32_t);
    const int64_t steps = part.words / kMatrixWords;
    const int64_t over = part.words % kMatrixWords * static_cast<int64_t>(sizeof(uint32_t));
    // The end of each row, followed by zeros: the memory after it may hold an infinity.
    alignas(64) char end[kTiles * kMatrixRows * kTileRowBytes] = {};
    for (int r = 0; over != 0 && r < kTiles * kMatrixRows; ++r) {
      std::memcpy(
          end + r * kTileRowBytes,
          x + r / kMatrixRows * second + r % kMatrixRows * rows.row_bytes + steps * kTileRowBytes,
          static_cast<size_t>(over));
    }
    for (int half = 0; half < 2; ++half) {
      TilePlace left = {x, static_cast<size_t>(rows.row_bytes), second};
      TilePlace right = {reinterpret_cast<const char*>(part.pairs + half * kTwo),
                         kQuantisedColumns * sizeof(uint32_t), kTileRowBytes};
      float* to = sums + half * kTwo;
      Sums::begin(to, kQuantisedColumns, fresh);
      for (int64_t step = 0; step < steps; ++step) {
        const TilePlace left_now = left, right_now = right;
        left.first += kTileRowBytes;
        right.first += kStep;
        Sums::ask_for_left(left);
        Sums::ask_for_right(right);
        Sums::add(left_now, right_now);
      }
      if (over != 0) Sums::add({end, kTileRowBytes, kMatrixRows * kTileRowBytes}, right);
      Sums::end(to, kQuantisedColumns);
    }
  }
};

using OfVectors = QuantisedPairs<VnniDot>;

size_t scratch_bytes(const QuantisedArgs& args, int64_t rows) {
  if (OfVectors::sum(args) != QuantisedSum::kPairs) return 0;
  // A last chunk of rows may be too few for a tile.
  const size_t few = OfVectors::scratch_bytes(args, kMatrixRows);
  const size_t many = static_cast<size_t>(MatrixPanels<8>::scratch_words(rows)) * sizeof(uint32_t);
  return rows < kMatrixRows || many < few ? few : many;
}

void panels(const QuantisedArgs& args, const QuantisedRows& rows, int64_t first, int64_t count,
            std::byte* scratch) {
  const bool pairs = OfVectors::sum(args) == QuantisedSum::kPairs;
  if (!pairs || rows.end - rows.first < kMatrixRows) {
    return each_panel<OfVectors>(args, rows, first, count, scratch);
  }
  if (args.bits == 8) return MatrixPanels<8>::run(args, rows, first, count, scratch);
  MatrixPanels<4>::run(args, rows, first, count, scratch);
}

}  // namespace

TORCHYARD_KERNELS(quantised, QuantisedKernel, amx,
                  {"quantised_linear_amx", "amx", isa::amx.required | kAvx512Vnni, OfVectors::sum,
                   scratch_bytes, OfVectors::prepare, kMatrixPanels, panels})

}  // namespace torchyard
