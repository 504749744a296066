// Tensors and masks for the tests, in memory of exactly the bytes that the contract states.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "attention/attention.h"
#include "attention/mask/mask.h"
#include "elements.h"

namespace {

using torchyard::ceil_div;
using torchyard::MaskBlocks;

struct Shape {
  int64_t batches, query_heads, key_heads, rows, keys, head_dim, value_dim;
  int64_t block_rows, block_keys;  // 0: no mask
  int threads;
};

std::mt19937 generator(0);

// A tensor whose last element ends where its memory ends.
class Buffer {
 public:
  Buffer(DType dtype, int64_t batches, int64_t heads, int64_t rows, int64_t size, int64_t padding)
      : dtype_(dtype), heads_(heads), rows_(rows), row_(size + padding) {
    const int64_t count = batches * heads * rows;
    bytes_ = count == 0 ? 0 : static_cast<size_t>(count * row_ - padding) * element_size(dtype);
    memory_.reset(new unsigned char[bytes_]);
    std::memset(memory_.get(), 0xff, bytes_);
  }

  double get(int64_t b, int64_t h, int64_t r, int64_t i) const {
    return read_element(dtype_, memory_.get() + offset(b, h, r, i));
  }

  void set(int64_t b, int64_t h, int64_t r, int64_t i, float x) {
    write_element(dtype_, memory_.get() + offset(b, h, r, i), x);
  }

  void* data() const { return memory_.get(); }
  int64_t batch_stride() const { return heads_ * rows_ * row_; }
  int64_t head_stride() const { return rows_ * row_; }
  int64_t row_stride() const { return row_; }

 private:
  size_t offset(int64_t b, int64_t h, int64_t r, int64_t i) const {
    return static_cast<size_t>(((b * heads_ + h) * rows_ + r) * row_ + i) * element_size(dtype_);
  }

  DType dtype_;
  int64_t heads_;
  int64_t rows_;
  int64_t row_;
  size_t bytes_;
  std::unique_ptr<unsigned char[]> memory_;
};

void fill(Buffer& buffer, int64_t batches, int64_t heads, int64_t rows, int64_t size) {
  std::normal_distribution<float> normal;
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < size; ++i) buffer.set(b, h, r, i, normal(generator));
      }
    }
  }
}

// A mask for one batch and one head, in arrays of exactly the lengths that the contract states.
struct Mask {
  std::vector<char> visible;  // [rows][keys]
  std::vector<int32_t> partial_count, partial_index, full_count, full_index;
  std::vector<uint8_t> bits;
  std::vector<int64_t> first_partial;
  MaskBlocks blocks{};

  explicit Mask(const Shape& s) {
    blocks.block_rows = s.block_rows;
    blocks.block_keys = s.block_keys;
    blocks.row_blocks = ceil_div(s.rows, s.block_rows);
    // One list as narrow as it may be for any rows, the other with a place to spare.
    blocks.partial_width = ceil_div(s.keys, s.block_keys);
    blocks.full_width = blocks.partial_width + 1;
    blocks.batches = blocks.heads = 1;
    visible.assign(static_cast<size_t>(s.rows * s.keys), 0);
    // Per block: hidden, whole or random.
    for (int64_t rb = 0; rb < blocks.row_blocks; ++rb) add_row(s, rb);
    // A vector's spare room would hide a read beyond its end.
    partial_count.shrink_to_fit();
    partial_index.shrink_to_fit();
    full_count.shrink_to_fit();
    full_index.shrink_to_fit();
    bits.shrink_to_fit();
    first_partial.shrink_to_fit();
    blocks.partial_count = partial_count.data();
    blocks.partial_index = partial_index.data();
    blocks.full_count = full_count.data();
    blocks.full_index = full_index.data();
    blocks.bits = bits.data();
    blocks.first_partial = first_partial.data();
  }

 private:
  void add_row(const Shape& s, int64_t rb) {
    std::vector<int32_t> partial;
    std::vector<int32_t> full;
    first_partial.push_back(static_cast<int64_t>(bits.size()) /
                            (s.block_rows * ceil_div(s.block_keys, 8)));
    for (int64_t kb = 0; kb < ceil_div(s.keys, s.block_keys); ++kb) {
      const unsigned kind = generator() % 3;
      if (kind == 0) continue;
      (kind == 1 ? full : partial).push_back(static_cast<int32_t>(kb));
      const size_t start = bits.size();
      const int64_t row_bytes = ceil_div(s.block_keys, 8);
      if (kind == 2) bits.resize(start + static_cast<size_t>(s.block_rows * row_bytes));
      for (int64_t r = 0; r < s.block_rows && rb * s.block_rows + r < s.rows; ++r) {
        for (int64_t k = 0; k < s.block_keys && kb * s.block_keys + k < s.keys; ++k) {
          if (kind == 2 && generator() % 3 != 0) continue;
          visible[static_cast<size_t>((rb * s.block_rows + r) * s.keys + kb * s.block_keys + k)] =
              1;
          if (kind == 2) {
            bits[start + static_cast<size_t>(r * row_bytes + k / 8)] |=
                static_cast<uint8_t>(1u << (k % 8));
          }
        }
      }
    }
    partial_count.push_back(static_cast<int32_t>(partial.size()));
    full_count.push_back(static_cast<int32_t>(full.size()));
    partial.resize(static_cast<size_t>(blocks.partial_width));
    full.resize(static_cast<size_t>(blocks.full_width));
    partial_index.insert(partial_index.end(), partial.begin(), partial.end());
    full_index.insert(full_index.end(), full.begin(), full.end());
  }
};

}  // namespace
