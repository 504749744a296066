// A program on every interpreter that this processor can run: operands of each shape and of two
// dtypes, two results, one of them in place, in memory of exactly the elements that are read and
// written. AddressSanitizer sees the rest.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "pointwise/pointwise.h"
#include "programs/program.h"

namespace {

using torchyard::Element;
using torchyard::kColumn;
using torchyard::kRow;
using torchyard::kTile;
using torchyard::kUniform;
using torchyard::ProgramOp;
using torchyard::ProgramPlace;
using torchyard::ProgramStep;

constexpr int64_t operand(int64_t slot, int64_t shape) { return slot * 4 + shape; }

// y = (x - row) * column + scale, and y again as float16; x, a tile, is written with y.
constexpr ProgramStep kSteps[] = {
    {ProgramOp::load_float32, 0, -1, -1, -1, 3, 0},
    {ProgramOp::load_float32, 0, -1, -1, -1, 1, 0},
    {ProgramOp::load_bfloat16, 0, -1, -1, -1, 2, 0},
    {ProgramOp::load_float32, 0, -1, -1, -1, 0, 0},
    {ProgramOp::sub_mul_f, 1, operand(0, kTile), operand(0, kRow), operand(0, kColumn), 0, 0},
    {ProgramOp::add_f, 2, operand(1, kTile), operand(0, kUniform), -1, 0, 0},
};
constexpr Element kOperands[] = {Element::kFloat32, Element::kFloat32, Element::kBFloat16,
                                 Element::kFloat32};
constexpr torchyard::ProgramResult kResults[] = {
    {operand(2, kTile), Element::kFloat32, 0},
    {operand(2, kTile), Element::kFloat16, 0},
};

char* bytes(void* at) { return static_cast<char*>(at); }

float half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const float fraction = static_cast<float>(bits & 1023) / 1024;
  const float size =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -size : size;
}

bool is_wrong(const torchyard::ProgramKernel& kernel, int64_t rows, int64_t columns, int threads) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<int> eighths(-16, 16);
  const auto number = [&] { return static_cast<float>(eighths(generator)) / 8; };
  std::vector<float> x(static_cast<size_t>(rows * columns)), row(static_cast<size_t>(rows));
  std::vector<uint16_t> column(static_cast<size_t>(columns)), half(x.size());
  for (float& value : x) value = number();
  for (float& value : row) value = number();
  for (uint16_t& value : column) {
    const float single = number();
    uint32_t word;
    static_assert(sizeof(word) == sizeof(single), "a float is a word");
    std::memcpy(&word, &single, sizeof(word));
    value = static_cast<uint16_t>(word >> 16);  // exact
  }
  float scale = 0.25f;
  const std::vector<float> before = x;

  torchyard::Program program = {kSteps, {1, 1, 1, 3}, {1, 1, 1, 3}, 4, kOperands, 2, kResults};
  const ProgramPlace places[] = {
      {bytes(x.data()), columns, 1}, {bytes(row.data()), 1, 0},
      {bytes(column.data()), 0, 1},  {bytes(&scale), 0, 0},
      {bytes(x.data()), columns, 1}, {bytes(half.data()), columns, 1},
  };
  const int64_t sizes[] = {rows, columns};
  if (!torchyard::pointwise({&program, 1, sizes, places}, kernel, threads)) return true;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const size_t at = static_cast<size_t>(r * columns + c);
      const uint32_t word = static_cast<uint32_t>(column[static_cast<size_t>(c)]) << 16;
      float factor;
      std::memcpy(&factor, &word, sizeof(factor));
      const float expected = (before[at] - row[static_cast<size_t>(r)]) * factor + scale;
      if (x[at] != expected) return true;
      if (std::abs(half_value(half[at]) - expected) > std::abs(expected) * 0x1p-11f) return true;
    }
  }
  return false;
}

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t i = 0; i < torchyard::kProgramKernels.size(); ++i) {
    const torchyard::ProgramKernel& kernel = torchyard::kProgramKernels[i];
    if ((kernel.required & ~features) != 0) continue;
    for (const int64_t rows : {1, 2, 37}) {
      for (const int64_t columns : {1, 3, 16, 17, 256, 257, 513, 1100}) {
        for (const int threads : {1, 3}) {
          ++cases;
          if (!is_wrong(kernel, rows, columns, threads)) continue;
          ++failures;
          std::printf("%s, %d x %d: wrong\n", kernel.name, static_cast<int>(rows),
                      static_cast<int>(columns));
        }
      }
    }
  }
  std::printf("%d cases, %d failures\n", cases, failures);
  return cases == 0 || failures != 0;
}
