// Every kernel that this processor can run, with keys in pages and side by side: the same bits.
// Pool and table have exactly the bytes that the contract lets a kernel touch.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "attention/attention.h"
#include "attention/decode/decode.h"
#include "attention/inputs.h"

namespace {

using torchyard::DecodeKernel;
using torchyard::ForwardArgs;
using torchyard::ForwardKernel;
using torchyard::Status;

struct PagedShape {
  std::vector<int32_t> lengths;
  int64_t query_heads, key_heads, rows, head_dim, value_dim, page_keys;
  int threads;
};

Status call(const ForwardArgs& args, const ForwardKernel& kernel, int threads) {
  return torchyard::attention_forward(args, kernel, threads, true);
}

Status call(const ForwardArgs& args, const DecodeKernel& kernel, int threads) {
  return torchyard::attention_decode(args, kernel, threads, true);
}

torchyard::Strided strided(const Buffer& x) {
  return {x.data(), x.batch_stride(), x.head_stride(), x.row_stride()};
}

// Copies the rows of one sequence into its pages; what is left of the last one stays NaN.
void lay_out(const Buffer& rows, int64_t heads, int64_t size, int64_t length, int64_t page_keys,
             const int32_t* table, Buffer* pool) {
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t k = 0; k < length; ++k) {
      for (int64_t i = 0; i < size; ++i) {
        pool->set(table[k / page_keys], h, k % page_keys, i,
                  static_cast<float>(rows.get(0, h, k, i)));
      }
    }
  }
}

// Returns the number of sequences whose results differ.
template <class Kernel>
int run(const Kernel& kernel, const PagedShape& s) {
  const int64_t batches = static_cast<int64_t>(s.lengths.size());
  int64_t pages = 0;
  int64_t width = 0;
  for (const int64_t length : s.lengths) {
    pages += ceil_div(length, s.page_keys);
    width = std::max(width, ceil_div(length, s.page_keys));
  }
  // Pages are given out from the last to the first; after a sequence's own there is none.
  std::vector<int32_t> table(static_cast<size_t>(batches * width), -1);
  table.shrink_to_fit();
  Buffer key_pool(kernel.dtype, pages, s.key_heads, s.page_keys, s.head_dim, 0);
  Buffer value_pool(kernel.dtype, pages, s.key_heads, s.page_keys, s.value_dim, 0);
  Buffer query(kernel.dtype, batches, s.query_heads, s.rows, s.head_dim, 0);
  fill(query, batches, s.query_heads, s.rows, s.head_dim);
  Buffer out(kernel.dtype, batches, s.query_heads, s.rows, s.value_dim, 0);
  Buffer expected(kernel.dtype, batches, s.query_heads, s.rows, s.value_dim, 0);

  ForwardArgs args{};
  args.query_heads = s.query_heads;
  args.key_heads = s.key_heads;
  args.query_rows = s.rows;
  args.head_dim = s.head_dim;
  args.value_dim = s.value_dim;
  args.scale = 0.4;
  args.query = strided(query);
  args.batches = 1;
  const size_t head_bytes = static_cast<size_t>(out.batch_stride()) * element_size(kernel.dtype);
  int32_t next = static_cast<int32_t>(pages);
  for (int64_t b = 0; b < batches; ++b) {
    const int64_t length = s.lengths[static_cast<size_t>(b)];
    int32_t* own = table.data() + b * width;
    for (int64_t i = 0; i < ceil_div(length, s.page_keys); ++i) own[i] = --next;
    Buffer key(kernel.dtype, 1, s.key_heads, length, s.head_dim, 0);
    Buffer value(kernel.dtype, 1, s.key_heads, length, s.value_dim, 0);
    fill(key, 1, s.key_heads, length, s.head_dim);
    fill(value, 1, s.key_heads, length, s.value_dim);
    lay_out(key, s.key_heads, s.head_dim, length, s.page_keys, own, &key_pool);
    lay_out(value, s.key_heads, s.value_dim, length, s.page_keys, own, &value_pool);
    args.keys = length;
    args.key = strided(key);
    args.value = strided(value);
    args.query.data = static_cast<const char*>(query.data()) +
                      b * query.batch_stride() * static_cast<int64_t>(element_size(kernel.dtype));
    args.out = {static_cast<char*>(expected.data()) + static_cast<size_t>(b) * head_bytes,
                expected.batch_stride(), expected.head_stride(), expected.row_stride()};
    if (call(args, kernel, 1) != Status::kOk) return 1;
  }

  const torchyard::Pages layout = {table.data(), width, s.lengths.data(), s.page_keys};
  args.batches = batches;
  args.keys = 0;
  for (const int64_t length : s.lengths) args.keys = std::max(args.keys, length);
  args.query = strided(query);
  args.key = strided(key_pool);
  args.value = strided(value_pool);
  args.out = {out.data(), out.batch_stride(), out.head_stride(), out.row_stride()};
  args.pages = &layout;
  if (call(args, kernel, s.threads) != Status::kOk) return 1;
  int wrong = 0;
  for (int64_t b = 0; b < batches; ++b) {
    const size_t at = static_cast<size_t>(b) * head_bytes;
    wrong += std::memcmp(static_cast<char*>(out.data()) + at,
                         static_cast<char*>(expected.data()) + at, head_bytes) != 0;
  }
  return wrong;
}

const PagedShape kShapes[] = {
    {{1}, 1, 1, 1, 1, 1, 1, 1},
    {{0, 3}, 2, 1, 2, 8, 8, 2, 2},
    {{5, 0, 64, 65}, 2, 2, 3, 17, 5, 1, 2},
    {{700, 1, 130}, 4, 2, 2, 40, 24, 3, 3},
    {{513, 512, 511, 90}, 4, 1, 4, 64, 64, 16, 2},
    {{1100, 10}, 8, 2, 1, 128, 128, 64, 2},
    {{300, 1300}, 2, 2, 5, 33, 255, 100, 7},
    {{200}, 1, 1, 16, 256, 7, 1000, 1},
};

template <class Kernel>
void run_table(const torchyard::KernelTable<Kernel>& table, int* cases, int* failures) {
  const torchyard::FeatureSet features = torchyard::detect_features();
  for (size_t i = 0; i < table.size(); ++i) {
    const Kernel& kernel = table[i];
    if ((kernel.required & ~features) != 0) {
      std::printf("%s: not run, this processor lacks its instructions\n", kernel.name);
      continue;
    }
    for (const PagedShape& shape : kShapes) {
      ++*cases;
      const int wrong = run(kernel, shape);
      *failures += wrong != 0;
      if (wrong != 0) {
        std::printf("%s, shape %d: %d sequences differ\n", kernel.name,
                    static_cast<int>(&shape - kShapes), wrong);
      }
    }
  }
}

}  // namespace

int main() {
  int cases = 0;
  int failures = 0;
  run_table(torchyard::kForwardKernels, &cases, &failures);
  run_table(torchyard::kDecodeKernels, &cases, &failures);
  std::printf("%d cases, %d failures\n", cases, failures);
  return cases == 0 || failures != 0;
}
