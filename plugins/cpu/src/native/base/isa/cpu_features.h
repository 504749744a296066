// What the running processor and operating system let us execute.
//
// Names are those of Linux's /proc/cpuinfo ("avx512_bf16"), on every system, so that a feature set
// reported by one layer means the same in another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchyard {

using FeatureSet = uint32_t;

enum Feature : FeatureSet {
  kAvx2 = 1u << 0,
  kFma = 1u << 1,
  kF16c = 1u << 2,
  kAvx512F = 1u << 3,
  kAvx512Bw = 1u << 4,
  kAvx512Dq = 1u << 5,
  kAvx512Vl = 1u << 6,
  kAvx512Bf16 = 1u << 7,
  kAvx512Vnni = 1u << 8,
  kAmxTile = 1u << 9,
  kAmxBf16 = 1u << 10,
  kAsimd = 1u << 16,
  kArmBf16 = 1u << 17,
};

// What every AVX-512 kernel needs: x86-64-v4.
constexpr FeatureSet kAvx512 = kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl;

struct FeatureName {
  Feature feature;
  const char* name;
};

extern const FeatureName kFeatureNames[];
extern const size_t kFeatureCount;

// Returns, on x86-64, the features that cpuid reports and whose registers the operating system
// saves (xgetbv), those of matrix tiles only where it permits them and a first product is right; on
// 64-bit Arm, those that the operating system reports. Empty on other processors.
FeatureSet detect_features();

// Whether a product of vectors of bfloat16 pairs (vdpbf16ps) takes longer than the two of float32
// that it stands for, as on every processor of Intel's so far; AMD's do it in the time of one.
bool has_slow_bf16_pairs();

// Whether one tensor is read faster in several pages at once than line after line, as on Intel's
// processors: each of them fetches ahead within a page only, and for many pages at a time. On AMD's
// Zen 5 one stream is the faster. (Several tensors are several pages anywhere: programs/streams.h.)
bool reads_in_parts();

// Returns the bit of `name`, or 0 for a name that no kernel here asks for.
FeatureSet feature_from_name(const char* name);

}  // namespace torchyard
