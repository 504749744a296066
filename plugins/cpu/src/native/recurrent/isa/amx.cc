// Recurrent layers for processors with matrix tiles of bfloat16 (AMX-BF16).
//
// A tile of the right factor reads 16 words of depth of one vector of a panel, as the kernel of
// pairs lays panels out, and one of the left factor 16 rows of operands as they lie. Rows beyond
// those that exist are whatever lies there, and so are their sums, which nobody reads.
#include <cstring>

#include "base/isa/kernel_table.h"
#include "recurrent/pack-inl.h"
#include "recurrent/step-inl.h"
#include "simd/format_bf16_pair_avx512.h"
#include "simd/tile_sums.h"

namespace torchyard {
namespace {

using VectorWords = PairWords<Bf16PairFormat>;
struct TileWords : VectorWords {};

// One row and two panels are multiplied by vectors, as there.
template <>
struct Product<TileWords> : Product<VectorWords> {
  template <int kVectors>
  static constexpr int most_rows() {
    return kTwo;
  }

  // As many as two tiles have: two blocks of 24 rows would take the time of two of 32.
  template <int kVectors>
  static int64_t block_rows(int64_t) {
    return kTwo;
  }

  // Writes all rows of the tiles that `count` rows, 1 to most_rows(), take.
  template <int kVectors>
  static void sums(int64_t count, const Bf16* rows, int64_t row_stride, const std::byte* panel,
                   int64_t words, const float* init, float* out, int64_t out_stride) {
    if (count > kMatrixRows) {
      block<kVectors, 2>(rows, row_stride, panel, words, init, out, out_stride);
    } else {
      block<kVectors, 1>(rows, row_stride, panel, words, init, out, out_stride);
    }
  }

  static void run(const RecurrentProductJob& job) {
    if (job.vectors == 3) {
      all<3>(job);
    } else {
      all<4>(job);
    }
  }

 private:
  template <int kVectors>
  static void all(const RecurrentProductJob& job) {
    constexpr int64_t kWidth = kVectors * kLanes;
    alignas(64) float last[kTwo * kWidth];
    for (int64_t p = job.first_panel; p < job.end_panel; ++p) {
      const std::byte* panel = job.panels + p * panel_bytes(job.words, kVectors);
      const float* bias = job.bias + p * kWidth;
      for (int64_t r = 0; r < job.row_count; r += kTwo) {
        const Bf16* rows = static_cast<const Bf16*>(job.rows) + r * job.row_stride;
        float* out = job.out + r * job.out_stride + p * kWidth;
        const int64_t count = job.row_count - r < kTwo ? job.row_count - r : kTwo;
        if (count % kMatrixRows == 0) {
          sums<kVectors>(count, rows, job.row_stride, panel, job.words, bias, out, job.out_stride);
          continue;
        }
        // Rows that do not exist are another's.
        sums<kVectors>(count, rows, job.row_stride, panel, job.words, bias, last, kWidth);
        for (int64_t i = 0; i < count; ++i) {
          std::memcpy(out + i * job.out_stride, last + i * kWidth, kWidth * sizeof(float));
        }
      }
    }
  }

  // kTiles tiles of rows times a panel.
  template <int kVectors, int kTiles>
  static TORCHYARD_NOINLINE void block(const Bf16* rows, int64_t row_stride, const std::byte* panel,
                                       int64_t words, const float* init, float* out,
                                       int64_t out_stride) {
    constexpr int kGroup = grouped(kVectors);
    for (int v = 0; v < kVectors; ++v) {
      const Vec first = init == nullptr ? Isa::zero() : Isa::load(init + v * kLanes);
      for (int r = 0; r < kTiles * kMatrixRows; ++r) {
        Isa::store(out + r * out_stride + v * kLanes, first);
      }
    }
    for (int g = 0; g < kVectors; g += kGroup) {
      const Factors factors = {rows, row_stride, panel + g * words * kTileRowBytes, words};
      // All of a group at once where the sums leave tiles for it.
      constexpr int kTogether = kTiles == 1 ? kGroup : 2;
      add<kGroup, kTiles, kTogether>(factors, 0, out + g * kLanes, out_stride);
      if constexpr (kTogether < kGroup) {
        add<kGroup, kTiles, 1>(factors, 2, out + (g + 2) * kLanes, out_stride);
      }
    }
  }

  struct Factors {
    const Bf16* rows;
    int64_t row_stride;
    const std::byte* group;
    int64_t words;
  };

  // Adds the products with kTogether vectors of a group, from the number `vector` on.
  template <int kGroup, int kTiles, int kTogether>
  static TORCHYARD_INLINE void add(const Factors& of, int vector, float* out, int64_t out_stride) {
    using Sums = TileSums<kTiles, kTogether>;
    constexpr int64_t kWordBytes = kGroup * kTileRowBytes;
    const int64_t row = of.row_stride * static_cast<int64_t>(sizeof(Bf16));
    TilePlace left = {reinterpret_cast<const char*>(of.rows), static_cast<size_t>(row),
                      kMatrixRows * row};
    TilePlace right = {reinterpret_cast<const char*>(of.group) + vector * kTileRowBytes, kWordBytes,
                       kTileRowBytes};
    Sums::begin(out, out_stride, false);
    int64_t w = 0;
    for (; w + kMatrixWords <= of.words; w += kMatrixWords) {
#pragma GCC unroll 16
      for (int step = 0; step < kMatrixWords; ++step) {
#pragma GCC unroll 3
        for (int v = 0; v < kTogether; ++v) {
          __builtin_prefetch(right.first + kAheadBytes + step * kWordBytes + v * kTileRowBytes);
        }
      }
      Sums::add(left, right);
      left.first += kTileRowBytes;
      right.first += kMatrixWords * kWordBytes;
    }
    if (w < of.words) {
      // Memory after either factor may hold NaN, which must not be multiplied, not even by zero.
      alignas(64) char left_end[kTiles * kMatrixRows * kTileRowBytes] = {};
      alignas(64) char right_end[kMatrixWords * kWordBytes] = {};
      const int64_t over = of.words - w;
      for (int r = 0; r < kTiles * kMatrixRows; ++r) {
        std::memcpy(left_end + r * kTileRowBytes, left.first + r * row,
                    static_cast<size_t>(over) * sizeof(uint32_t));
      }
      const int64_t lines = over * kGroup - vector;
      std::memcpy(right_end, right.first, static_cast<size_t>(lines * kTileRowBytes));
      matrix_fence();
      Sums::add({left_end, kTileRowBytes, kMatrixRows * kTileRowBytes},
                {right_end, kWordBytes, kTileRowBytes});
    }
    Sums::end(out, out_stride);
  }

  // How far ahead of a product its weights are asked for.
  static constexpr int64_t kAheadBytes = 96 * kTileRowBytes;
};

void product(const RecurrentProductJob& job) {
  const MatrixTiles tiles;
  Product<TileWords>::run(job);
}

void step(const RecurrentStepJob& job) {
  const MatrixTiles tiles;
  Step<TileWords>::run(job);
}

using Packer = RecurrentPacker<VectorWords>;

}  // namespace

TORCHYARD_KERNELS(recurrent, RecurrentKernel, amx,
                  {"recurrent_bf16_amx", "amx", DType::kBFloat16, isa::amx.required, Avx512::kLanes,
                   VectorWords::kPair, kMatrixRows, sizeof(Bf16), sizeof(Bf16),
                   VectorWords::kLaneBytes, Packer::run, product, step, Packer::to_operands,
                   Packer::from_operands, Packer::widen, Packer::narrow})

}  // namespace torchyard
