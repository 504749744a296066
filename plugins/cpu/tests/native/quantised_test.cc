// Every product with quantised weights that this processor runs, against double precision.
#include "quantised/quantised.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace {

using torchyard::kQuantisedColumns;
using torchyard::QuantisedArgs;
using torchyard::QuantisedElement;
using torchyard::QuantisedKernel;

int failures = 0;
int cases = 0;

float widened(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float x;
  std::memcpy(&x, &word, sizeof(x));
  return x;
}

uint16_t narrowed(float x) {
  uint32_t word;
  std::memcpy(&word, &x, sizeof(word));
  return static_cast<uint16_t>(word >> 16);
}

// A weight of random codes, in blocks of exactly the bytes that it needs, so that a sanitizer sees
// a read beyond them.
struct Weight {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<uint16_t> low_scales;
  std::vector<uint8_t> zeros;
  std::vector<double> values;  // [columns][depth]
};

Weight make_weight(const QuantisedArgs& args, bool asymmetric, std::mt19937& random) {
  Weight made;
  const int64_t panels = args.panels(), groups = args.groups();
  made.codes.resize(static_cast<size_t>(panels * args.panel_bytes()));
  for (uint8_t& code : made.codes) code = static_cast<uint8_t>(random());
  const size_t scales = static_cast<size_t>(panels * groups * kQuantisedColumns);
  for (size_t i = 0; i < scales; ++i) {
    made.low_scales.push_back(narrowed(0.01f + static_cast<float>(random() % 100) * 0.001f));
    made.scales.push_back(widened(made.low_scales.back()));
    if (asymmetric) made.zeros.push_back(static_cast<uint8_t>(random() % 16));
  }
  for (int64_t n = 0; n < args.columns; ++n) {
    for (int64_t k = 0; k < args.depth; ++k) {
      const int64_t panel = n / kQuantisedColumns, column = n % kQuantisedColumns;
      const uint8_t* base = made.codes.data() + panel * args.panel_bytes();
      int code;
      if (args.bits == 8) {
        code = base[(k / 4 * kQuantisedColumns + column) * 4 + k % 4];
      } else {
        const uint8_t both = base[(k / 8 * kQuantisedColumns + column) * 4 + k % 4];
        code = k % 8 < 4 ? both & 15 : both >> 4;
      }
      const int64_t group = args.group == 0 ? 0 : k / args.group;
      const size_t at = static_cast<size_t>((panel * groups + group) * kQuantisedColumns + column);
      const int zero = asymmetric ? made.zeros[at] : args.bits == 8 ? 128 : 8;
      made.values.push_back(static_cast<double>(made.scales[at]) * (code - zero));
    }
  }
  return made;
}

// The activations that the call multiplies: rounded to bytes or as they are.
std::vector<double> activations(const QuantisedArgs& args, const std::vector<float>& x) {
  std::vector<double> found(x.begin(), x.end());
  for (int64_t r = 0; args.bytes && r < args.rows; ++r) {
    double* row = found.data() + r * args.depth;
    double most = 0.0;
    for (int64_t k = 0; k < args.depth; ++k) most = std::max(most, std::abs(row[k]));
    for (int64_t k = 0; k < args.depth; ++k) {
      row[k] = most == 0.0 ? 0.0 : std::nearbyint(row[k] * 127.0 / most) * most / 127.0;
    }
  }
  return found;
}

void check(const QuantisedKernel& kernel, QuantisedArgs args, bool asymmetric, bool low,
           int threads, std::mt19937& random) {
  const Weight weight = make_weight(args, asymmetric, random);
  std::vector<float> x;
  std::vector<uint16_t> low_x;
  // Few different magnitudes, none of which is between two codes.
  for (int64_t i = 0; i < args.rows * args.depth; ++i) {
    x.push_back(static_cast<float>(static_cast<int>(random() % 255) - 127));
    low_x.push_back(narrowed(x.back()));
  }
  for (int64_t r = 0; r < args.rows; ++r) {
    x[static_cast<size_t>(r * args.depth)] = 127.0f;
    low_x[static_cast<size_t>(r * args.depth)] = narrowed(127.0f);
  }
  std::vector<float> out(static_cast<size_t>(args.rows * args.columns), -1.0f);
  std::vector<uint16_t> low_out(out.size());
  args.element = low ? QuantisedElement::kBFloat16 : QuantisedElement::kFloat32;
  args.x = low ? static_cast<const void*>(low_x.data()) : x.data();
  args.x_stride = args.depth;
  args.codes = weight.codes.data();
  args.scales =
      args.group == 0 ? static_cast<const void*>(weight.scales.data()) : weight.low_scales.data();
  args.zeros = asymmetric ? weight.zeros.data() : nullptr;
  args.bias = nullptr;
  args.out = low ? static_cast<void*>(low_out.data()) : out.data();
  args.out_stride = args.columns;
  ++cases;
  if (!torchyard::quantised_linear(args, kernel, threads)) {
    std::printf("%s: out of memory\n", kernel.name);
    ++failures;
    return;
  }
  const std::vector<double> given = activations(args, x);
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t n = 0; n < args.columns; ++n) {
      double exact = 0.0, size = 0.0;
      for (int64_t k = 0; k < args.depth; ++k) {
        const double part = given[static_cast<size_t>(r * args.depth + k)] *
                            weight.values[static_cast<size_t>(n * args.depth + k)];
        exact += part;
        size += std::abs(part);
      }
      const size_t at = static_cast<size_t>(r * args.columns + n);
      const double found = low ? widened(low_out[at]) : out[at];
      // Sums of float32; where rows are bfloat16 what is stored, and maybe a weight, is rounded.
      const double steps = static_cast<double>(args.depth + 4) * (asymmetric ? 16 : 1);
      const double bound = size * steps * 0x1p-23 + (low ? size * 0x1p-7 : 0.0) + 1e-30;
      if (std::abs(found - exact) <= bound) continue;
      std::printf("%s: bits %d group %lld bytes %d low %d rows %lld: (%lld, %lld): %g, not %g\n",
                  kernel.name, args.bits, static_cast<long long>(args.group), args.bytes, low,
                  static_cast<long long>(args.rows), static_cast<long long>(r),
                  static_cast<long long>(n), found, exact);
      ++failures;
      return;
    }
  }
}

}  // namespace

int main() {
  std::mt19937 random(7);
  const torchyard::FeatureSet features = torchyard::detect_features();
  for (size_t i = 0; i < torchyard::kQuantisedKernels.size(); ++i) {
    const QuantisedKernel& kernel = torchyard::kQuantisedKernels[i];
    if ((kernel.required & ~features) != 0) continue;
    for (const int bits : {8, 4}) {
      for (const int64_t group : {0, 32, 128}) {
        for (const int64_t rows : {1, 3, 8, 21, 130}) {
          for (const bool bytes : {false, true}) {
            for (const bool low : {false, true}) {
              QuantisedArgs args = {};
              args.bits = bits;
              args.group = group;
              args.rows = rows;
              args.bytes = bytes;
              args.columns = 1 + static_cast<int64_t>(random() % 150);
              args.depth = 1 + static_cast<int64_t>(random() % (rows == 8 ? 5000 : 300));
              const bool asymmetric = bits == 4 && random() % 2 == 0;
              check(kernel, args, asymmetric, low, 1 + static_cast<int>(random() % 3), random);
            }
          }
        }
      }
    }
  }
  std::printf("%d cases\n", cases);
  return failures == 0 && cases > 0 ? 0 : 1;
}
