// A score program on every kernel that this processor can run: loads and gathers from tensors of
// exactly the elements that visible pairs need, and indices out of range. AddressSanitizer sees the
// rest.
#include "attention/score.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "attention/attention.h"
#include "attention/dispatch.h"
#include "attention/mask.h"
#include "elements.h"

namespace {

using torchyard::ForwardArgs;
using torchyard::ForwardKernel;
using torchyard::MaskBlocks;
using torchyard::ScoreOp;
using torchyard::ScoreStep;

constexpr int64_t kNone = torchyard::kRawScore;
std::mt19937 generator(0);

int64_t operand(int64_t slot, int64_t shape) { return slot * 4 + shape; }
int64_t address(const void* p) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(p)); }

struct Shape {
  int64_t rows, keys, table;  // table: elements; fewer than q * k needs is an error
  bool causal;
  int threads;
};

// score + bias[q, k] + near[q - k + keys - 1] + table[q * k]
class Program {
 public:
  Program(const Shape& s)
      : bias(static_cast<size_t>(s.rows * s.keys)),
        near(static_cast<size_t>(s.rows + s.keys - 1)),
        table(static_cast<size_t>(s.table)) {
    std::normal_distribution<float> normal;
    for (auto* values : {&bias, &near, &table}) {
      for (float& x : *values) x = normal(generator);
    }
    using namespace torchyard;
    add(ScoreOp::constant_l, kNone, kNone, 0, s.keys);
    add(ScoreOp::constant_l, kNone, kNone, 0, s.keys - 1);
    next();
    const int64_t q = add(ScoreOp::input_q, kNone, kNone, 0, 0);
    const int64_t wide = add(ScoreOp::long_of_i, q, kNone, 0, 0);
    const int64_t start = add(ScoreOp::mul_l, wide, operand(0, kUniform), 0, 0);
    const int64_t distance = add(ScoreOp::add_l, wide, operand(1, kUniform), 0, 0);
    next();
    const int64_t k = add(ScoreOp::input_k, kNone, kNone, 0, 0);
    next();
    const int64_t first = add(ScoreOp::load_float32, start, kNone, address(bias.data()), 1);
    const int64_t second = add(ScoreOp::load_float32, distance, kNone, address(near.data()), -1);
    const int64_t product = add(ScoreOp::mul_i, q, k, 0, 0);
    const int64_t index = add(ScoreOp::index_i, product, kNone, 0, s.table);
    const int64_t third = add(ScoreOp::gather_float32, index, kNone, address(table.data()), 0);
    const int64_t sum = add(ScoreOp::add_f, first, second, 0, 0);
    const int64_t more = add(ScoreOp::add_f, sum, third, 0, 0);
    program.result = add(ScoreOp::add_f, more, kNone, 0, 0);
    next();
    program.steps = steps_.data();
    program.failure = &failure;
  }

  std::vector<float> bias, near, table;
  torchyard::ScoreFailure failure{-1, 0};
  torchyard::ScoreProgram program{};

 private:
  int64_t add(ScoreOp op, int64_t a, int64_t b, int64_t data, int64_t extra) {
    steps_.push_back({op, used_, a, b, kNone, data, extra});
    return operand(used_++, shape_);
  }
  void next() {
    program.counts[shape_] = program.slots[shape_] = used_;
    used_ = 0;
    ++shape_;
  }

  std::vector<ScoreStep> steps_;
  int64_t used_ = 0;
  int64_t shape_ = 0;
};

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
  // One block of all pairs, q >= k.
  const int32_t one = 1, zero = 0;
  const int64_t slot = 0;
  const int64_t row_bytes = torchyard::ceil_div(s.keys, 8);
  std::vector<uint8_t> bits(static_cast<size_t>(s.rows * row_bytes));
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t j = 0; j <= r && j < s.keys; ++j) {
      bits[static_cast<size_t>(r * row_bytes + j / 8)] |= static_cast<uint8_t>(1u << (j % 8));
    }
  }
  const MaskBlocks mask{s.rows, s.keys, 1,       1,       1,           1,    1,
                        &one,   &zero,  nullptr, nullptr, bits.data(), &slot};
  if (s.causal) args.mask = &mask;
  const auto status = torchyard::attention_forward(args, kernel, s.threads, true);

  int64_t largest = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    largest = std::max(largest, r * (s.causal ? std::min(r, s.keys - 1) : s.keys - 1));
  }
  if (largest >= s.table) return status != torchyard::Status::kIndexOutOfRange;
  if (status != torchyard::Status::kOk) return true;
  for (int64_t r = 0; r < s.rows; ++r) {
    double total = 0;
    for (int64_t j = 0; j < (s.causal ? std::min(r + 1, s.keys) : s.keys); ++j) {
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

const Shape kShapes[] = {
    {1, 1, 1, false, 1},        {7, 63, 373, false, 2},   {6, 64, 316, true, 1},
    {13, 65, 769, false, 1},    {5, 577, 2305, false, 1}, {131, 200, 25871, true, 2},
    {70, 700, 100000, true, 3}, {7, 63, 372, false, 2},   {40, 500, 1000, true, 1},
    {40, 39, 1483, true, 2},
};

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t i = 0; i < torchyard::kForwardKernelCount; ++i) {
    const ForwardKernel& kernel = *torchyard::kForwardKernels[i];
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
