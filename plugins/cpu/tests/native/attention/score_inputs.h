// A score program on tensors of exactly the elements that visible pairs need, and its derivatives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "attention/attention.h"
#include "attention/mask/mask.h"
#include "attention/score.h"

namespace {

using torchyard::ForwardArgs;
using torchyard::MaskBlocks;
using torchyard::ProgramOp;
using torchyard::ProgramStep;

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
    add(ProgramOp::constant_l, kNone, kNone, 0, s.keys);
    add(ProgramOp::constant_l, kNone, kNone, 0, s.keys - 1);
    one = add(ProgramOp::constant_f, kNone, kNone, 0, 0x3f800000);
    next();
    const int64_t q = add(ProgramOp::input_q, kNone, kNone, 0, 0);
    const int64_t wide = add(ProgramOp::long_of_i, q, kNone, 0, 0);
    start = add(ProgramOp::mul_l, wide, operand(0, kUniform), 0, 0);
    distance = add(ProgramOp::add_l, wide, operand(1, kUniform), 0, 0);
    next();
    const int64_t k = add(ProgramOp::input_k, kNone, kNone, 0, 0);
    next();
    const int64_t first = add(ProgramOp::load_float32, start, kNone, address(bias.data()), 1);
    const int64_t second = add(ProgramOp::load_float32, distance, kNone, address(near.data()), -1);
    const int64_t product = add(ProgramOp::mul_i, q, k, 0, 0);
    index = add(ProgramOp::index_i, product, kNone, 0, s.table);
    const int64_t third = add(ProgramOp::gather_float32, index, kNone, address(table.data()), 0);
    const int64_t sum = add(ProgramOp::add_f, first, second, 0, 0);
    const int64_t more = add(ProgramOp::add_f, sum, third, 0, 0);
    program.result = add(ProgramOp::add_f, more, kNone, 0, 0);
    next();
    program.steps = steps_.data();
    program.failure = &failure;
  }

  std::vector<float> bias, near, table;
  torchyard::ScoreFailure failure{-1, 0};
  torchyard::ScoreProgram program{};
  int64_t one, start, distance,
      index;  // operands: 1, where bias and near begin, where table is read

 private:
  int64_t add(ProgramOp op, int64_t a, int64_t b, int64_t data, int64_t extra) {
    steps_.push_back({op, used_, a, b, kNone, data, extra});
    return operand(used_++, shape_);
  }
  void next() {
    program.counts[shape_] = program.slots[shape_] = used_;
    used_ = 0;
    ++shape_;
  }

  std::vector<ProgramStep> steps_;
  int64_t used_ = 0;
  int64_t shape_ = 0;
};

// One block of all pairs, q >= k.
struct Causal {
  explicit Causal(const Shape& s)
      : row_bytes(torchyard::ceil_div(s.keys, 8)),
        bits(static_cast<size_t>(s.rows * row_bytes)),
        blocks{s.rows, s.keys, 1, 1, 1, 1, 1, &one, &zero, nullptr, nullptr, bits.data(), &slot} {
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t j = 0; j <= r && j < s.keys; ++j) {
        bits[static_cast<size_t>(r * row_bytes + j / 8)] |= static_cast<uint8_t>(1u << (j % 8));
      }
    }
  }
  Causal(const Causal&) = delete;

  int64_t row_bytes;
  std::vector<uint8_t> bits;
  int32_t one = 1, zero = 0;
  int64_t slot = 0;
  MaskBlocks blocks;
};

// Keys that a row sees.
int64_t visible(const Shape& s, int64_t row) {
  return s.causal ? std::min(row + 1, s.keys) : s.keys;
}

// The largest index into the table that a visible pair has.
int64_t largest_index(const Shape& s) {
  int64_t largest = 0;
  for (int64_t r = 0; r < s.rows; ++r) largest = std::max(largest, r * (visible(s, r) - 1));
  return largest;
}

const Shape kShapes[] = {
    {1, 1, 1, false, 1},        {7, 63, 373, false, 2},   {6, 64, 316, true, 1},
    {13, 65, 769, false, 1},    {5, 577, 2305, false, 1}, {131, 200, 25871, true, 2},
    {70, 700, 100000, true, 3}, {7, 63, 372, false, 2},   {40, 500, 1000, true, 1},
    {40, 39, 1483, true, 2},
};

}  // namespace
