#include "base/isa/cpu_features.h"

#include <cstring>

#include "base/isa/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace torchyard {

const FeatureName kFeatureNames[] = {
    {kAvx2, "avx2"},
    {kFma, "fma"},
    {kF16c, "f16c"},
    {kAvx512F, "avx512f"},
    {kAvx512Bw, "avx512bw"},
    {kAvx512Dq, "avx512dq"},
    {kAvx512Vl, "avx512vl"},
    {kAvx512Bf16, "avx512_bf16"},
    {kAvx512Vnni, "avx512_vnni"},
    {kAmxTile, "amx_tile"},
    {kAmxBf16, "amx_bf16"},
    {kAsimd, "asimd"},
    {kArmBf16, "bf16"},
};
const size_t kFeatureCount = sizeof(kFeatureNames) / sizeof(kFeatureNames[0]);

#if defined(__x86_64__)

namespace {

// XCR0 bits: SSE and AVX state, then opmask and both halves of the zmm state.
constexpr uint64_t kYmmState = 0x6;
constexpr uint64_t kZmmState = 0xe6;
// Tile configuration and tile data.
constexpr uint64_t kTileState = 0x60000;

uint64_t read_xcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

// `leaf7` is edx of leaf 7.
bool has_matrix_tiles(uint64_t state, uint32_t leaf7) {
#if defined(TORCHYARD_AMX_MODEL)
  (void)state;
  (void)leaf7;
#else
  if ((state & kTileState) != kTileState || !bit(leaf7, 24) || !bit(leaf7, 22)) return false;
#endif
  return matrix_tiles_work();
}

}  // namespace

FeatureSet detect_features() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !bit(ecx, 27)) return 0;  // OSXSAVE
  const uint32_t leaf1 = ecx;
  const uint64_t state = read_xcr0();
  if ((state & kYmmState) != kYmmState || !bit(leaf1, 28)) return 0;  // AVX

  FeatureSet found = 0;
  if (bit(leaf1, 12)) found |= kFma;
  if (bit(leaf1, 29)) found |= kF16c;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return found;
  const uint32_t highest_subleaf = eax;
  const uint32_t leaf7 = ebx;
  const uint32_t leaf7_more = edx;
  if (bit(leaf7, 5)) found |= kAvx2;
  if ((state & kZmmState) != kZmmState || !bit(leaf7, 16)) return found;
  found |= kAvx512F;
  if (bit(leaf7, 17)) found |= kAvx512Dq;
  if (bit(leaf7, 30)) found |= kAvx512Bw;
  if (bit(leaf7, 31)) found |= kAvx512Vl;
  if (bit(ecx, 11)) found |= kAvx512Vnni;
  if (highest_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && bit(eax, 5)) {
    found |= kAvx512Bf16;
  }
  if (has_matrix_tiles(state, leaf7_more)) found |= kAmxTile | kAmxBf16;
  return found;
}

#elif defined(__aarch64__) && defined(__linux__)

// Bits of the auxiliary vector, which older systems' headers do not name.
constexpr unsigned long kHwcapAsimd = 1ul << 1;
constexpr unsigned long kHwcap2Bf16 = 1ul << 14;

FeatureSet detect_features() {
  FeatureSet found = 0;
  if ((getauxval(AT_HWCAP) & kHwcapAsimd) != 0) found |= kAsimd;
  if ((getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0) found |= kArmBf16;
  return found;
}

#elif defined(__aarch64__) && defined(__APPLE__)

FeatureSet detect_features() {
  FeatureSet found = kAsimd;  // every such processor has it
  int present = 0;
  size_t size = sizeof(present);
  if (sysctlbyname("hw.optional.arm.FEAT_BF16", &present, &size, nullptr, 0) == 0 && present != 0) {
    found |= kArmBf16;
  }
  return found;
}

#else

FeatureSet detect_features() { return 0; }

#endif

namespace {

bool is_of_intel() {
#if defined(__x86_64__)
  uint32_t highest = 0;
  uint32_t vendor[3] = {};  // in the order of its letters
  if (__get_cpuid(0, &highest, &vendor[0], &vendor[2], &vendor[1]) == 0) return false;
  return std::memcmp(vendor, "GenuineIntel", sizeof(vendor)) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_slow_bf16_pairs() { return is_of_intel(); }

bool reads_in_parts() {
  // A virtual machine takes long to answer.
  static const bool found = is_of_intel();
  return found;
}

FeatureSet feature_from_name(const char* name) {
  for (size_t i = 0; i < kFeatureCount; ++i) {
    if (std::strcmp(kFeatureNames[i].name, name) == 0) return kFeatureNames[i].feature;
  }
  return 0;
}

}  // namespace torchyard
