// A score program on every kernel that this processor can run: loads and gathers from tensors of
// exactly the elements that visible pairs need, and indices out of range. AddressSanitizer sees the
// rest.
#include <cmath>
#include <cstdio>
#include <vector>

#include "attention/decode/decode.h"
#include "attention/score_inputs.h"
#include "elements.h"

namespace {

using torchyard::ForwardKernel;

bool is_wrong(const ForwardKernel& kernel, const Shape& s) {
  constexpr int64_t kDim = 9;
  const size_t element = element_size(kernel.dtype);
  const auto count = [&](int64_t rows) { return static_cast<size_t>(rows * kDim) * element; };
  std::vector<unsigned char> query(count(s.rows)), key(count(s.keys)), value(count(s.keys)),
      out(count(s.rows));
  std::vector<double> q(static_cast<size_t>(s.rows * kDim)), k(static_cast<size_t>(s.keys * kDim));
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<unsigned char>& to, std::vector<double>& kept) {
    for (size_t i = 0; i < kept.size(); ++i) {
      const float x = std::round(normal(generator) * 8) / 8;  // exact in every dtype
      kept[i] = x;
      write_element(kernel.dtype, &to[i * element], x);
    }
  };
  fill(query, q);
  fill(key, k);
  std::vector<double> ignored(static_cast<size_t>(s.keys * kDim));
  fill(value, ignored);
  std::vector<float> lse(static_cast<size_t>(s.rows), NAN);
  Program program(s);

  ForwardArgs args{};
  args.batches = args.query_heads = args.key_heads = 1;
  args.query_rows = s.rows;
  args.keys = s.keys;
  args.head_dim = args.value_dim = kDim;
  args.query = {query.data(), 0, 0, kDim};
  args.key = {key.data(), 0, 0, kDim};
  args.value = {value.data(), 0, 0, kDim};
  args.out = {out.data(), 0, 0, kDim};
  args.lse = lse.data();
  args.scale = 0.25;
  args.score = &program.program;
  const Causal mask(s);
  if (s.causal) args.mask = &mask.blocks;
  const auto status = torchyard::attention_forward(args, kernel, s.threads, true);

  if (largest_index(s) >= s.table) return status != torchyard::Status::kIndexOutOfRange;
  if (status != torchyard::Status::kOk) return true;
  for (int64_t r = 0; r < s.rows; ++r) {
    double total = 0;
    for (int64_t j = 0; j < visible(s, r); ++j) {
      double score = 0;
      for (int64_t i = 0; i < kDim; ++i) {
        score += q[static_cast<size_t>(r * kDim + i)] * k[static_cast<size_t>(j * kDim + i)];
      }
      total += std::exp(score * args.scale + program.bias[static_cast<size_t>(r * s.keys + j)] +
                        program.near[static_cast<size_t>(r - j + s.keys - 1)] +
                        program.table[static_cast<size_t>(r * j)]);
    }
    if (!(std::abs(std::log(total) - lse[static_cast<size_t>(r)]) < 2e-5)) return true;
  }
  return false;
}

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t i = 0; i < torchyard::kForwardKernels.size(); ++i) {
    const ForwardKernel& kernel = torchyard::kForwardKernels[i];
    if ((kernel.required & ~features) != 0) continue;
    for (const Shape& shape : kShapes) {
      ++cases;
      if (is_wrong(kernel, shape)) {
        ++failures;
        std::printf("%s, %d x %d: wrong\n", kernel.name, static_cast<int>(shape.rows),
                    static_cast<int>(shape.keys));
      }
    }
  }
  std::printf("%d cases, %d failures\n", cases, failures);
  return cases == 0 || failures != 0;
}
