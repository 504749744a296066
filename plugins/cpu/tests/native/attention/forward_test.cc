// Every kernel that this processor can run, over awkward shapes, in buffers of exactly the bytes
// that the contract lets it touch: under AddressSanitizer one byte too many ends the test.
#include "attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "attention/decode/decode.h"
#include "attention/inputs.h"

namespace {

using torchyard::ceil_div;
using torchyard::DecodeKernel;
using torchyard::ForwardArgs;
using torchyard::ForwardKernel;

struct Tensors {
  Buffer query, key, value, out;
};

// Compares one row with float64; returns whether it is wrong.
bool row_is_wrong(const Shape& s, const Mask* mask, const Tensors& t, double scale, double bound,
                  float lse, const float* greatest, int64_t b, int64_t h, int64_t r) {
  const int64_t g = h / (s.query_heads / s.key_heads);
  std::vector<double> score(static_cast<size_t>(s.keys), -std::numeric_limits<double>::infinity());
  double largest = -std::numeric_limits<double>::infinity();
  double reach = 0;
  for (int64_t k = 0; k < s.keys; ++k) {
    if (mask != nullptr && mask->visible[static_cast<size_t>(r * s.keys + k)] == 0) continue;
    double sum = 0;
    double size = 0;
    for (int64_t i = 0; i < s.head_dim; ++i) {
      const double term = t.query.get(b, h, r, i) * t.key.get(b, g, k, i);
      sum += term;
      size += std::abs(term);
    }
    score[static_cast<size_t>(k)] = sum * scale;
    largest = std::max(largest, sum * scale);
    reach = std::max(reach, size * scale);
  }
  // Scores are off by a rounding of float32 of what they sum, and the normaliser by as much.
  bound += 2 * 0x1p-23 * reach;
  if (std::isinf(largest)) {
    bool wrong = !(std::isinf(lse) && lse < 0);
    wrong = wrong || (greatest != nullptr && !(std::isinf(*greatest) && *greatest < 0));
    for (int64_t i = 0; i < s.value_dim; ++i) wrong = wrong || t.out.get(b, h, r, i) != 0;
    return wrong;
  }
  double total = 0;
  for (const double x : score) total += std::exp(x - largest);
  const double true_lse = largest + std::log(total);
  bool wrong = !(std::abs(lse - true_lse) < 2e-5 * (1 + std::abs(true_lse)));
  wrong = wrong || (greatest != nullptr &&
                    !(std::abs(*greatest - largest) < 2e-5 * (1 + std::abs(largest))));
  for (int64_t i = 0; i < s.value_dim; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (int64_t k = 0; k < s.keys; ++k) {
      const double term =
          std::exp(score[static_cast<size_t>(k)] - true_lse) * t.value.get(b, g, k, i);
      sum += term;
      magnitude += std::abs(term);
    }
    // 2^-25: half the distance between float16's smallest numbers.
    wrong = wrong || !(std::abs(t.out.get(b, h, r, i) - sum) <= bound * magnitude + 0x1p-25);
  }
  return wrong;
}

torchyard::Status call(const ForwardArgs& args, const ForwardKernel& kernel, int threads) {
  return torchyard::attention_forward(args, kernel, threads, true);
}

torchyard::Status call(const ForwardArgs& args, const DecodeKernel& kernel, int threads) {
  return torchyard::attention_decode(args, kernel, threads, true);
}

// Returns the number of wrong rows.
template <class Kernel>
int64_t run(const Kernel& kernel, const Shape& s) {
  const DType dtype = kernel.dtype;
  Tensors t{Buffer(dtype, s.batches, s.query_heads, s.rows, s.head_dim, 1),
            Buffer(dtype, s.batches, s.key_heads, s.keys, s.head_dim, 3),
            Buffer(dtype, s.batches, s.key_heads, s.keys, s.value_dim, 0),
            Buffer(dtype, s.batches, s.query_heads, s.rows, s.value_dim, 1)};
  fill(t.query, s.batches, s.query_heads, s.rows, s.head_dim);
  fill(t.key, s.batches, s.key_heads, s.keys, s.head_dim);
  fill(t.value, s.batches, s.key_heads, s.keys, s.value_dim);
  std::vector<float> lse(static_cast<size_t>(s.batches * s.query_heads * s.rows), NAN);
  std::vector<float> greatest(lse.size(), NAN);
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
  // bfloat16: one rounding of each probability and one of the result, doubled; float16: of the
  // result; float32: those of sums and of the exponential, generously. What the scores' own sums
  // bring is added for each row.
  const double bound = dtype == DType::kFloat32   ? 0x1p-19
                       : dtype == DType::kFloat16 ? 0x1p-10
                                                  : 0x1p-7;
  int64_t wrong = 0;
  // To return the greatest scores, the forward takes another path.
  for (const bool asked : {false, true}) {
    std::fill(lse.begin(), lse.end(), NAN);
    args.max_scores = asked ? greatest.data() : nullptr;
    if (call(args, kernel, s.threads) != torchyard::Status::kOk) return 1;
    for (int64_t b = 0; b < s.batches; ++b) {
      for (int64_t h = 0; h < s.query_heads; ++h) {
        for (int64_t r = 0; r < s.rows; ++r) {
          const size_t row = static_cast<size_t>((b * s.query_heads + h) * s.rows + r);
          wrong += row_is_wrong(s, mask.get(), t, args.scale, bound, lse[row],
                                asked ? &greatest[row] : nullptr, b, h, r);
        }
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

const Shape kDecodeShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 0, 0, 1},      {1, 2, 1, 5, 0, 8, 8, 0, 0, 1},
    {2, 2, 2, 7, 63, 17, 5, 0, 0, 1},    {1, 3, 1, 1, 65, 40, 72, 0, 0, 2},
    {1, 16, 1, 1, 600, 33, 31, 0, 0, 3}, {1, 1, 1, 4, 70, 256, 255, 0, 0, 1},
    {2, 8, 2, 2, 1100, 64, 64, 0, 0, 2}, {1, 2, 2, 16, 513, 128, 129, 128, 128, 2},
    {1, 2, 1, 7, 611, 7, 9, 3, 20, 1},   {1, 1, 1, 3, 700, 12, 12, 1, 1000, 1},
    {1, 1, 1, 2, 90, 10, 10, 300, 1, 1}, {2, 4, 1, 4, 1300, 24, 48, 2, 13, 2},
};

// Runs every kernel of a table on every shape; adds to the counts.
template <class Kernel, size_t kShapeCount>
void run_table(const torchyard::KernelTable<Kernel>& table, const Shape (&shapes)[kShapeCount],
               int* cases, int* failures) {
  const torchyard::FeatureSet features = torchyard::detect_features();
  for (size_t i = 0; i < table.size(); ++i) {
    const Kernel& kernel = table[i];
    if ((kernel.required & ~features) != 0) {
      std::printf("%s: not run, this processor lacks its instructions\n", kernel.name);
      continue;
    }
    int case_number = 0;
    for (const Shape& shape : shapes) {
      ++*cases;
      generator.seed(static_cast<unsigned>(case_number));  // whatever ran before
      const int64_t wrong = run(kernel, shape);
      if (wrong != 0) {
        ++*failures;
        std::printf("%s, shape %d: %d wrong rows\n", kernel.name, case_number,
                    static_cast<int>(wrong));
      }
      ++case_number;
    }
  }
}

}  // namespace

int main() {
  int cases = 0;
  int failures = 0;
  run_table(torchyard::kForwardKernels, kShapes, &cases, &failures);
  run_table(torchyard::kDecodeKernels, kDecodeShapes, &cases, &failures);
  std::printf("%d cases, %d failures\n", cases, failures);
  return cases == 0 || failures != 0;
}
