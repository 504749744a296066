// Every selection that this processor runs, against a stable sort.
#include "topk/topk.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

using torchyard::TopKDType;
using torchyard::TopKKernel;
using torchyard::TopKOrder;

// An element's place in the order, as a number: NaN above all.
double value_of(TopKDType dtype, const std::byte* p) {
  const auto read = [p](auto value) {
    std::memcpy(&value, p, sizeof(value));
    return value;
  };
  double value = 0.0;
  switch (dtype) {
    case TopKDType::kFloat32:
      value = read(float{});
      break;
    case TopKDType::kFloat64:
      value = read(double{});
      break;
    case TopKDType::kBFloat16: {
      const uint32_t bits = uint32_t{read(uint16_t{})} << 16;
      float wide;
      std::memcpy(&wide, &bits, sizeof(wide));
      value = wide;
      break;
    }
    case TopKDType::kFloat16: {
      const uint16_t bits = read(uint16_t{});
      const double magnitude = (bits & 0x7fff) > 0x7c00 ? 1e300 : (bits & 0x7fff);
      if (magnitude > 1e299) return magnitude;
      return (bits & 0x8000) != 0 ? -magnitude : magnitude;
    }
    case TopKDType::kUInt8:
      return read(uint8_t{});
    case TopKDType::kInt8:
      return read(int8_t{});
    case TopKDType::kInt16:
      return read(int16_t{});
    case TopKDType::kInt32:
      return read(int32_t{});
    case TopKDType::kInt64:
      // Tests keep them small enough to be exact.
      return static_cast<double>(read(int64_t{}));
  }
  if (value != value) return std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  return value > kMost ? kMost : value;
}

int failures = 0;

void check(const TopKKernel& kernel, int64_t length, int64_t k, bool largest, int shape,
           int threads) {
  const size_t bytes = kernel.element_bytes;
  std::mt19937_64 random(static_cast<uint64_t>(length * 31 + k));
  std::vector<std::byte> x(static_cast<size_t>(length) * bytes);
  for (int64_t i = 0; i < length; ++i) {
    // Any bits where they are few, small numbers where doubles must hold them.
    uint64_t bits = random();
    if (kernel.dtype == TopKDType::kInt64) bits = static_cast<uint64_t>(int64_t(bits) >> 20);
    if (shape == 1) bits = static_cast<uint64_t>(i);
    std::memcpy(x.data() + static_cast<size_t>(i) * bytes, &bits, bytes);
  }
  std::vector<double> order(static_cast<size_t>(length));
  for (size_t i = 0; i < order.size(); ++i) order[i] = value_of(kernel.dtype, &x[i * bytes]);
  std::vector<int64_t> expected(order.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) {
    const double first = order[static_cast<size_t>(a)], second = order[static_cast<size_t>(b)];
    return largest ? first > second : first < second;
  });
  std::vector<std::byte> values(static_cast<size_t>(k) * bytes);
  std::vector<int64_t> indices(static_cast<size_t>(k));
  const torchyard::TopKArgs args = {x.data(),      1,
                                    length,        length,
                                    nullptr,       0,
                                    nullptr,       k,
                                    largest,       TopKOrder::kSorted,
                                    values.data(), indices.data()};
  if (!torchyard::topk(args, kernel, threads)) {
    std::printf("%s: no memory\n", kernel.name);
    ++failures;
    return;
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    const bool same =
        std::memcmp(&values[i * bytes], &x[static_cast<size_t>(indices[i]) * bytes], bytes) == 0;
    if (indices[i] == expected[i] && same) continue;
    std::printf("%s length %lld k %lld largest %d shape %d place %zu: expected %lld, got %lld\n",
                kernel.name, static_cast<long long>(length), static_cast<long long>(k), largest,
                shape, i, static_cast<long long>(expected[i]), static_cast<long long>(indices[i]));
    ++failures;
    return;
  }
}

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  for (size_t i = 0; i < torchyard::kTopKKernels.size(); ++i) {
    const TopKKernel& kernel = torchyard::kTopKKernels[i];
    if ((kernel.required & ~features) != 0) continue;
    for (const int64_t length : {1, 15, 64, 333, 4097, 70000}) {
      for (const int64_t k : {1, 3, 50, 333, 4000}) {
        for (int shape = 0; k <= length && shape < 2; ++shape) {
          check(kernel, length, k, true, shape, 1);
          check(kernel, length, k, false, shape, 2);
          cases += 2;
        }
      }
    }
  }
  std::printf("%d selections, %d wrong\n", cases, failures);
  return failures == 0 && cases != 0 ? 0 : 1;
}
