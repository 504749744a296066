// As score_test.cc, for the backward kernels: gradients of the captured tensors, in memory of
// exactly their size, summed in place and in copies.
#include <cmath>
#include <cstdio>
#include <vector>

#include "attention/backward/backward.h"
#include "attention/score_inputs.h"
#include "elements.h"

namespace {

using torchyard::BackwardArgs;
using torchyard::BackwardKernel;
using torchyard::CapturedGradient;
using torchyard::ScoreGradient;
using torchyard::ScoreSite;
using torchyard::SiteForm;

bool is_near(const std::vector<float>& got, const std::vector<double>& expected) {
  double size = 1e-3;
  for (const double x : expected) size = std::max(size, std::abs(x));
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(static_cast<double>(got[i]) - expected[i]) < 2e-5 * size)) return false;
  }
  return true;
}

bool is_wrong(const BackwardKernel& kernel, const Shape& s) {
  constexpr int64_t kDim = 9;
  const size_t element = element_size(kernel.dtype);
  // query, key, value, out, grad_out; and the gradients of the first three.
  const int64_t counts[] = {s.rows, s.keys, s.keys, s.rows, s.rows};
  std::vector<unsigned char> memory[8];
  std::vector<double> number[5];
  std::normal_distribution<float> normal;
  for (int t = 0; t < 8; ++t) {
    memory[t].resize(static_cast<size_t>(counts[t % 5] * kDim) * element);
  }
  for (int t = 0; t < 5; ++t) {
    for (int64_t i = 0; i < counts[t] * kDim; ++i) {
      number[t].push_back(std::round(normal(generator) * 8) / 8);  // exact in every dtype
      write_element(kernel.dtype, &memory[t][static_cast<size_t>(i) * element],
                    static_cast<float>(number[t].back()));
    }
  }
  const auto dot = [&](int a, int64_t row, int b, int64_t other) {
    double sum = 0;
    for (int64_t i = 0; i < kDim; ++i) {
      sum += number[a][static_cast<size_t>(row * kDim + i)] *
             number[b][static_cast<size_t>(other * kDim + i)];
    }
    return sum;
  };
  Program program(s);
  std::vector<float> lse(static_cast<size_t>(s.rows));
  std::vector<double> bias(program.bias.size()), near(program.near.size()),
      table(program.table.size());
  const bool fits = largest_index(s) < s.table;
  for (int64_t r = 0; fits && r < s.rows; ++r) {
    std::vector<double> score;
    double total = 0;
    for (int64_t j = 0; j < visible(s, r); ++j) {
      score.push_back(0.25 * dot(0, r, 1, j) + program.bias[static_cast<size_t>(r * s.keys + j)] +
                      program.near[static_cast<size_t>(r - j + s.keys - 1)] +
                      program.table[static_cast<size_t>(r * j)]);
      total += std::exp(score.back());
    }
    lse[static_cast<size_t>(r)] = static_cast<float>(std::log(total));
    for (int64_t j = 0; j < visible(s, r); ++j) {
      const double p = std::exp(score[static_cast<size_t>(j)]) / total;
      const double ds = p * (dot(4, r, 2, j) - dot(4, r, 3, r));
      bias[static_cast<size_t>(r * s.keys + j)] += ds;
      near[static_cast<size_t>(r - j + s.keys - 1)] += ds;
      table[static_cast<size_t>(r * j)] += ds;
    }
  }

  std::vector<float> grads[] = {std::vector<float>(bias.size()),
                                std::vector<float>(near.size(), NAN),
                                std::vector<float>(table.size(), NAN)};
  const auto elements = [&](int t) { return static_cast<int64_t>(grads[t].size()); };
  const CapturedGradient tensors[] = {{address(grads[0].data()), elements(0), 1},
                                      {address(grads[1].data()), elements(1), 0},
                                      {address(grads[2].data()), elements(2), 0}};
  const ScoreSite sites[] = {{0, SiteForm::kAffine, program.start, 1, program.one},
                             {1, SiteForm::kAffine, program.distance, -1, program.one},
                             {2, SiteForm::kScatter, program.index, 0, program.one}};
  const ScoreGradient gradient{program.one, sites, 3, tensors, 3, false, false, true};
  BackwardArgs args{};
  ForwardArgs& call = args.call;
  call.batches = call.query_heads = call.key_heads = 1;
  call.query_rows = s.rows;
  call.keys = s.keys;
  call.head_dim = call.value_dim = kDim;
  call.query = {memory[0].data(), 0, 0, kDim};
  call.key = {memory[1].data(), 0, 0, kDim};
  call.value = {memory[2].data(), 0, 0, kDim};
  call.out = {memory[3].data(), 0, 0, kDim};
  call.lse = lse.data();
  call.scale = 0.25;
  call.score = &program.program;
  const Causal mask(s);
  if (s.causal) call.mask = &mask.blocks;
  args.grad_out = {memory[4].data(), 0, 0, kDim};
  args.grad_query = {memory[5].data(), 0, 0, kDim};
  args.grad_key = {memory[6].data(), 0, 0, kDim};
  args.grad_value = {memory[7].data(), 0, 0, kDim};
  args.score_gradient = &gradient;
  const auto status = torchyard::attention_backward(args, kernel, s.threads, true);

  if (!fits) return status != torchyard::Status::kIndexOutOfRange;
  return status != torchyard::Status::kOk || !is_near(grads[0], bias) || !is_near(grads[1], near) ||
         !is_near(grads[2], table);
}

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t i = 0; i < torchyard::kBackwardKernels.size(); ++i) {
    const BackwardKernel& kernel = torchyard::kBackwardKernels[i];
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
