// The first k elements of each row, in the total order of torchyard_kernels.topk.contract: best
// first, equal elements by lowest index, NaN greater than every number, -0.0 equal to 0.0.
//
// The order is total, so a result does not depend on how a row is cut: any number of threads, and
// any instruction set, gives the same bits.
//
// The caller guarantees: 1 <= k, and k <= length unless a mask or offsets make rows shorter;
// elements of a row lie side by side; offsets rise within the tensor; outputs overlap no input; no
// row longer than kMaxTopKLength.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/isa/kernel_table.h"

namespace torchyard {

// Indices within a row are 32-bit while they are selected.
constexpr int64_t kMaxTopKLength = (int64_t{1} << 31) - 65536;

enum class TopKDType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
};
constexpr int kTopKDTypes = 9;

// kSorted: all, best first. kIndex: all, by index. kLast: the k-th alone.
enum class TopKOrder : uint8_t { kSorted, kIndex, kLast };

// Strides are in elements. Outputs are [rows, k], or [rows, 1] for the last alone; where a row has
// fewer than k elements, the index is -1 and the value the worst of the dtype.
struct TopKArgs {
  const void* x;
  int64_t rows;
  int64_t length;
  int64_t row_stride;
  const uint8_t* mask;  // a byte per element, 0: hidden; null: none is
  int64_t mask_row_stride;
  const int64_t* offsets;  // [rows + 1]: rows are segments of x; null: rows are rows
  int64_t k;
  bool largest;
  TopKOrder order;
  void* values;
  int64_t* indices;
};

// A stretch of one row: elements [begin, end).
struct TopKPart {
  const void* row;
  const uint8_t* mask;  // of the row, or null
  int64_t begin;
  int64_t end;
};

// What is selected of one row, or of a part of it: `count` keys and indices, rising by index.
// Memory for `capacity` and a few more of both.
struct TopKBuffer {
  void* keys;  // int32 or int64, greater is better
  uint32_t* index;
  int64_t count;
};

struct TopKKernel {
  const char* name;
  const char* isa;
  TopKDType dtype;
  FeatureSet required;
  size_t element_bytes;
  size_t key_bytes;
  // Fills an empty buffer of `topk_capacity` with the k best of a part, or all where it has fewer;
  // where they are few, up to kTopKFew, with the others that came with them.
  void (*select)(const TopKPart& part, int64_t k, bool largest, TopKBuffer* buffer);
  // Leaves the k best in a buffer, puts them in order and writes one row's outputs. `spare` is for
  // 2 * k items of 16 bytes. `base` is added to every index.
  void (*finish)(const void* row, int64_t k, bool largest, TopKOrder order, TopKBuffer* buffer,
                 void* spare, int64_t base, void* values, int64_t* indices);
};

// How many elements a buffer holds before the worst of them are dropped.
int64_t topk_capacity(int64_t length, int64_t k);

// Beyond the capacity: what is appended between two looks at the count.
constexpr int64_t kTopKSlack = 512;

// So many may be left of a part, of which the k best are found while they are sorted.
constexpr int64_t kTopKFew = 32;

// Whether offsets, where there are any, rise within x.
bool offsets_fit(const TopKArgs& args);

// Returns false where memory is exhausted.
bool topk(const TopKArgs& args, const TopKKernel& kernel, int threads);

extern const KernelTable<TopKKernel> kTopKKernels;

}  // namespace torchyard
