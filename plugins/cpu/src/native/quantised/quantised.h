// Products with weights of 8 or 4 bits: out = x . W^T + bias, W[n][k] = scale * (code - zero).
//
// Codes are unsigned and lie in panels of 64 columns (outputs n):
//   8 bits: [panels][K' / 4][64][4]: byte j of a word is the code of k = 4 w + j;
//   4 bits: [panels][K' / 8][64][4]: byte j holds k = 8 w + j below and k = 8 w + 4 + j above;
// K' is K rounded up to 8. Scales are float32 [panels][64] where each output has one, else bfloat16
// [panels][groups][64]; zeros are bytes of the same shape, or absent: 128 for 8 bits, 8 for 4.
// Codes beyond N or K may have any value: no output that is stored depends on them.
//
// A word of four codes times a word of four activations is what processors with dot products of
// bytes multiply at once, and 64 columns are the accumulators of one row of x: weights are read
// once, one byte after the other, and nothing is summed across lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/isa/kernel_table.h"

namespace torchyard {

constexpr int64_t kQuantisedColumns = 64;
constexpr int64_t kQuantisedPad = 8;
// A sum of products of bytes is put into float32 after this many.
constexpr int64_t kLongestSegment = 4096;

enum class QuantisedElement : int { kFloat32, kBFloat16, kFloat16 };

// How activations are multiplied.
enum class QuantisedSum : int {
  // Rounded to 8 bits, a scale for each row: 127 is the row's largest magnitude. A row with an
  // infinity or a NaN gives NaN.
  kBytes,
  // As float32.
  kFloats,
  // As pairs of bfloat16, summed in float32.
  kPairs,
};

struct QuantisedArgs {
  int64_t rows;
  int64_t columns;  // N
  int64_t depth;    // K
  const void* x;    // [rows][depth], rows x_stride elements apart
  int64_t x_stride;
  QuantisedElement element;  // of x, bias and out
  bool bytes;                // round activations to 8 bits
  int bits;
  int64_t group;  // codes with a common scale; 0: all of an output's
  const uint8_t* codes;
  const void* scales;
  const uint8_t* zeros;  // null: the middle code
  const void* bias;      // [columns] or null
  void* out;             // [rows][columns], rows out_stride elements apart
  int64_t out_stride;

  int64_t padded() const { return (depth + kQuantisedPad - 1) / kQuantisedPad * kQuantisedPad; }
  int64_t panels() const { return (columns + kQuantisedColumns - 1) / kQuantisedColumns; }
  int64_t panel_bytes() const { return padded() * kQuantisedColumns * bits / 8; }
  int64_t groups() const { return group == 0 ? 1 : (depth + group - 1) / group; }
  int64_t segment() const { return group == 0 ? kLongestSegment : group; }
  int64_t segments() const { return (padded() + segment() - 1) / segment(); }
};

// The rows of x as the kernel multiplies them, in working memory.
struct QuantisedRows {
  std::byte* words;    // [rows][padded] bytes, float32 or bfloat16; zeros beyond depth
  float* scales;       // [rows] of bytes; with 8-bit pairs 0 where a row is not finite
  int32_t* sums;       // [rows][segments] of bytes, or the same in float32
  int64_t row_bytes;   // of words
  int64_t first, end;  // rows of the call that are here
};

struct QuantisedKernel {
  const char* name;
  const char* isa;
  FeatureSet required;
  // How the call's activations are multiplied.
  QuantisedSum (*sum)(const QuantisedArgs&);
  // Bytes of working memory of one thread.
  size_t (*scratch_bytes)(const QuantisedArgs&, int64_t rows);
  // Makes rows [from, to) of the call.
  void (*prepare)(const QuantisedArgs&, const QuantisedRows&, int64_t from, int64_t to);
  // Panels at most that are best computed at once.
  int64_t panels_at_once;
  // Computes the outputs of so many panels, from `first` on, for all rows that are there.
  void (*panels)(const QuantisedArgs&, const QuantisedRows&, int64_t first, int64_t count,
                 std::byte* scratch);
};

extern const KernelTable<QuantisedKernel> kQuantisedKernels;

// Runs a kernel on up to `threads` threads; false where memory is exhausted.
bool quantised_linear(const QuantisedArgs& args, const QuantisedKernel& kernel, int threads);

}  // namespace torchyard
