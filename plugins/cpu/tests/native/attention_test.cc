// Every kernel that this processor can run, over awkward shapes, in buffers of exactly the bytes
// that the contract lets it touch: under AddressSanitizer one byte too many ends the test.
#include "attention/attention.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "attention/dispatch.h"
#include "attention/mask.h"

namespace {

using torchyard::ceil_div;
using torchyard::DType;
using torchyard::ForwardArgs;
using torchyard::ForwardKernel;
using torchyard::MaskBlocks;

struct Shape {
  int64_t batches, query_heads, key_heads, rows, keys, head_dim, value_dim;
  int64_t block_rows, block_keys;  // 0: no mask
  int threads;
};

std::mt19937 generator(0);

size_t element_size(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

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
    const unsigned char* at = memory_.get() + offset(b, h, r, i);
    uint32_t bits = 0;
    if (dtype_ == DType::kFloat32) {
      std::memcpy(&bits, at, 4);
    } else {
      uint16_t half;
      std::memcpy(&half, at, 2);
      bits = static_cast<uint32_t>(half) << 16;
    }
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }

  void set(int64_t b, int64_t h, int64_t r, int64_t i, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    unsigned char* at = memory_.get() + offset(b, h, r, i);
    if (dtype_ == DType::kFloat32) {
      std::memcpy(at, &bits, 4);
    } else {
      const uint16_t half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(at, &half, 2);
    }
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

struct Tensors {
  Buffer query, key, value, out;
};

// Compares one row with float64; returns whether it is wrong.
bool row_is_wrong(const Shape& s, const Mask* mask, const Tensors& t, double scale, double bound,
                  float lse, int64_t b, int64_t h, int64_t r) {
  const int64_t g = h / (s.query_heads / s.key_heads);
  std::vector<double> score(static_cast<size_t>(s.keys), -std::numeric_limits<double>::infinity());
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < s.keys; ++k) {
    if (mask != nullptr && mask->visible[static_cast<size_t>(r * s.keys + k)] == 0) continue;
    double sum = 0;
    for (int64_t i = 0; i < s.head_dim; ++i) sum += t.query.get(b, h, r, i) * t.key.get(b, g, k, i);
    score[static_cast<size_t>(k)] = sum * scale;
    largest = std::max(largest, sum * scale);
  }
  if (std::isinf(largest)) {
    bool wrong = !(std::isinf(lse) && lse < 0);
    for (int64_t i = 0; i < s.value_dim; ++i) wrong = wrong || t.out.get(b, h, r, i) != 0;
    return wrong;
  }
  double total = 0;
  for (const double x : score) total += std::exp(x - largest);
  const double true_lse = largest + std::log(total);
  bool wrong = !(std::abs(lse - true_lse) < 2e-5 * (1 + std::abs(true_lse)));
  for (int64_t i = 0; i < s.value_dim; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (int64_t k = 0; k < s.keys; ++k) {
      const double term =
          std::exp(score[static_cast<size_t>(k)] - true_lse) * t.value.get(b, g, k, i);
      sum += term;
      magnitude += std::abs(term);
    }
    wrong = wrong || !(std::abs(t.out.get(b, h, r, i) - sum) <= bound * magnitude);
  }
  return wrong;
}

// Returns the number of wrong rows.
int64_t run(const ForwardKernel& kernel, const Shape& s) {
  const DType dtype = kernel.dtype;
  Tensors t{Buffer(dtype, s.batches, s.query_heads, s.rows, s.head_dim, 1),
            Buffer(dtype, s.batches, s.key_heads, s.keys, s.head_dim, 3),
            Buffer(dtype, s.batches, s.key_heads, s.keys, s.value_dim, 0),
            Buffer(dtype, s.batches, s.query_heads, s.rows, s.value_dim, 1)};
  fill(t.query, s.batches, s.query_heads, s.rows, s.head_dim);
  fill(t.key, s.batches, s.key_heads, s.keys, s.head_dim);
  fill(t.value, s.batches, s.key_heads, s.keys, s.value_dim);
  std::vector<float> lse(static_cast<size_t>(s.batches * s.query_heads * s.rows), NAN);
  std::unique_ptr<Mask> mask;
  if (s.block_rows != 0) mask.reset(new Mask(s));

  ForwardArgs args{};
  args.batches = s.batches;
  args.query_heads = s.query_heads;
  args.key_heads = s.key_heads;
  args.query_rows = s.rows;
  args.keys = s.keys;
  args.head_dim = s.head_dim;
  args.value_dim = s.value_dim;
  const auto strided = [](const Buffer& x) {
    return torchyard::Strided{x.data(), x.batch_stride(), x.head_stride(), x.row_stride()};
  };
  args.query = strided(t.query);
  args.key = strided(t.key);
  args.value = strided(t.value);
  args.out = {t.out.data(), t.out.batch_stride(), t.out.head_stride(), t.out.row_stride()};
  args.lse = lse.data();
  args.scale = 0.4;
  args.mask = mask == nullptr ? nullptr : &mask->blocks;
  if (torchyard::attention_forward(args, kernel, s.threads, true) != torchyard::Status::kOk) {
    return 1;
  }
  // bfloat16: one rounding of each probability and one of the result, doubled; float32: the
  // roundings of the scores' sums, generously.
  const double bound = dtype == DType::kFloat32 ? 0x1p-17 : 0x1p-7;
  int64_t wrong = 0;
  for (int64_t b = 0; b < s.batches; ++b) {
    for (int64_t h = 0; h < s.query_heads; ++h) {
      for (int64_t r = 0; r < s.rows; ++r) {
        const float row_lse = lse[static_cast<size_t>((b * s.query_heads + h) * s.rows + r)];
        wrong += row_is_wrong(s, mask.get(), t, args.scale, bound, row_lse, b, h, r);
      }
    }
  }
  return wrong;
}

const Shape kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 0, 0, 1},          {1, 1, 1, 0, 5, 8, 8, 0, 0, 2},
    {1, 2, 1, 5, 0, 8, 8, 0, 0, 1},          {2, 2, 2, 7, 63, 17, 5, 0, 0, 1},
    {1, 3, 1, 13, 65, 40, 72, 0, 0, 2},      {1, 2, 2, 6, 128, 64, 64, 0, 0, 1},
    {1, 1, 1, 129, 127, 80, 96, 0, 0, 3},    {1, 1, 1, 11, 600, 33, 31, 0, 0, 1},
    {1, 1, 1, 4, 70, 256, 255, 0, 0, 1},     {2, 4, 2, 50, 190, 24, 48, 16, 64, 2},
    {1, 2, 1, 131, 257, 16, 8, 128, 128, 2}, {1, 1, 1, 37, 211, 7, 9, 10, 20, 1},
    {1, 1, 1, 37, 211, 66, 130, 7, 13, 2},   {1, 1, 1, 20, 700, 12, 12, 1, 1000, 1},
    {3, 2, 2, 65, 64, 15, 16, 64, 64, 7},    {1, 2, 1, 3, 1100, 20, 20, 3, 192, 1},
    {1, 1, 1, 2, 90, 10, 10, 300, 1, 1},     {1, 1, 1, 1, 65, 2, 240, 1, 1, 1},
};

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t i = 0; i < torchyard::kForwardKernelCount; ++i) {
    const ForwardKernel& kernel = *torchyard::kForwardKernels[i];
    if ((kernel.required & ~features) != 0) {
      std::printf("%s: not run, this processor lacks its instructions\n", kernel.name);
      continue;
    }
    int case_number = 0;
    for (const Shape& shape : kShapes) {
      ++cases;
      const int64_t wrong = run(kernel, shape);
      if (wrong != 0) {
        ++failures;
        std::printf("%s, shape %d: %d wrong rows\n", kernel.name, case_number,
                    static_cast<int>(wrong));
      }
      ++case_number;
    }
  }
  std::printf("%d cases, %d failures\n", cases, failures);
  return cases == 0 || failures != 0;
}
