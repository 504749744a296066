// What metal.h declares, by the built-in functions of OpenCL and its extensions of sub-groups, for
// kernels that are compiled to SPIR-V. Each of those is named as OpenCL mangles it. Functions of
// vectors of integers are not defined.
#pragma once
#include "bfloat.h"
// After bfloat.h.
#include "metal.h"

// Inlined without other optimisations too: devices of OpenCL know what lanes take part in a
// kernel's own code.
#define TORCHYARD_INLINE inline __attribute__((always_inline))

namespace torchyard_opencl {

uint group_id(uint dimension) __asm("_Z12get_group_idj");
uint group_count(uint dimension) __asm("_Z14get_num_groupsj");
uint local_id(uint dimension) __asm("_Z12get_local_idj");
uint local_size(uint dimension) __asm("_Z14get_local_sizej");
uint lane() __asm("_Z22get_sub_group_local_idv");
uint simdgroup() __asm("_Z16get_sub_group_idv");
uint simdgroups() __asm("_Z18get_num_sub_groupsv");
void barrier(uint flags) __asm("_Z7barrierj");
void sub_group_barrier(uint flags) __asm("_Z17sub_group_barrierj");
int non_uniform_all(int x) __asm("_Z25sub_group_non_uniform_alli");
int non_uniform_any(int x) __asm("_Z25sub_group_non_uniform_anyi");
int elect() __asm("_Z15sub_group_electv");
uint4 ballot(int x) __asm("_Z16sub_group_balloti");

TORCHYARD_INLINE uint index_in_group() {
  return (local_id(2) * local_size(1) + local_id(1)) * local_size(0) + local_id(0);
}
TORCHYARD_INLINE uint grid_id(uint dimension) {
  return group_id(dimension) * local_size(dimension) + local_id(dimension);
}
TORCHYARD_INLINE uint grid_size(uint dimension) {
  return group_count(dimension) * local_size(dimension);
}
TORCHYARD_INLINE uint width() { return 32u; }
TORCHYARD_INLINE uint group_size() { return local_size(0) * local_size(1) * local_size(2); }

}  // namespace torchyard_opencl

namespace metal {

// The types of a function, each with how one, two and three arguments of it are mangled.
#define TORCHYARD_FLOATING(M)                  \
  M(half, "Dh", "DhDh", "DhDhDh")              \
  M(half2, "Dv2_Dh", "Dv2_DhS_", "Dv2_DhS_S_") \
  M(half3, "Dv3_Dh", "Dv3_DhS_", "Dv3_DhS_S_") \
  M(half4, "Dv4_Dh", "Dv4_DhS_", "Dv4_DhS_S_") \
  TORCHYARD_SINGLE(M)
#define TORCHYARD_SINGLE(M)                  \
  M(float, "f", "ff", "fff")                 \
  M(float2, "Dv2_f", "Dv2_fS_", "Dv2_fS_S_") \
  M(float3, "Dv3_f", "Dv3_fS_", "Dv3_fS_S_") \
  M(float4, "Dv4_f", "Dv4_fS_", "Dv4_fS_S_")

// The functions of mathematics that Metal and OpenCL call alike.
#define TORCHYARD_ALIKE(M, T, one, two, three)        \
  M(T, acos, "4acos" one, (T x), (x))                 \
  M(T, acosh, "5acosh" one, (T x), (x))               \
  M(T, asin, "4asin" one, (T x), (x))                 \
  M(T, asinh, "5asinh" one, (T x), (x))               \
  M(T, atan, "4atan" one, (T x), (x))                 \
  M(T, atan2, "5atan2" two, (T x, T y), (x, y))       \
  M(T, atanh, "5atanh" one, (T x), (x))               \
  M(T, ceil, "4ceil" one, (T x), (x))                 \
  M(T, copysign, "8copysign" two, (T x, T y), (x, y)) \
  M(T, cos, "3cos" one, (T x), (x))                   \
  M(T, cosh, "4cosh" one, (T x), (x))                 \
  M(T, cospi, "5cospi" one, (T x), (x))               \
  M(T, exp, "3exp" one, (T x), (x))                   \
  M(T, exp10, "5exp10" one, (T x), (x))               \
  M(T, exp2, "4exp2" one, (T x), (x))                 \
  M(T, fabs, "4fabs" one, (T x), (x))                 \
  M(T, fdim, "4fdim" two, (T x, T y), (x, y))         \
  M(T, floor, "5floor" one, (T x), (x))               \
  M(T, fma, "3fma" three, (T x, T y, T z), (x, y, z)) \
  M(T, fmax, "4fmax" two, (T x, T y), (x, y))         \
  M(T, fmin, "4fmin" two, (T x, T y), (x, y))         \
  M(T, fmod, "4fmod" two, (T x, T y), (x, y))         \
  M(T, log, "3log" one, (T x), (x))                   \
  M(T, log10, "5log10" one, (T x), (x))               \
  M(T, log2, "4log2" one, (T x), (x))                 \
  M(T, pow, "3pow" two, (T x, T y), (x, y))           \
  M(T, powr, "4powr" two, (T x, T y), (x, y))         \
  M(T, rint, "4rint" one, (T x), (x))                 \
  M(T, round, "5round" one, (T x), (x))               \
  M(T, rsqrt, "5rsqrt" one, (T x), (x))               \
  M(T, sin, "3sin" one, (T x), (x))                   \
  M(T, sinh, "4sinh" one, (T x), (x))                 \
  M(T, sinpi, "5sinpi" one, (T x), (x))               \
  M(T, sqrt, "4sqrt" one, (T x), (x))                 \
  M(T, tan, "3tan" one, (T x), (x))                   \
  M(T, tanh, "4tanh" one, (T x), (x))                 \
  M(T, tanpi, "5tanpi" one, (T x), (x))               \
  M(T, trunc, "5trunc" one, (T x), (x))
#define TORCHYARD_IMPORT(T, name, mangled, parameters, arguments) \
  T name parameters __asm("_Z" mangled);
#define TORCHYARD_FORWARD(T, name, mangled, parameters, arguments) \
  TORCHYARD_INLINE T name parameters { return ::torchyard_opencl::name arguments; }
#define TORCHYARD_BY_HAND(T)                                                        \
  TORCHYARD_INLINE T divide(T x, T y) { return x / y; }                             \
  TORCHYARD_INLINE T fract(T x) { return x - floor(x); }                            \
  TORCHYARD_INLINE T max(T x, T y) { return fmax(x, y); }                           \
  TORCHYARD_INLINE T min(T x, T y) { return fmin(x, y); }                           \
  TORCHYARD_INLINE T clamp(T x, T low, T high) { return fmin(fmax(x, low), high); } \
  TORCHYARD_INLINE T max3(T x, T y, T z) { return fmax(fmax(x, y), z); }            \
  TORCHYARD_INLINE T min3(T x, T y, T z) { return fmin(fmin(x, y), z); }            \
  TORCHYARD_INLINE T median3(T x, T y, T z) { return fmax(fmin(x, y), fmin(fmax(x, y), z)); }
}  // namespace metal
namespace torchyard_opencl {
#define TORCHYARD_IMPORTS(T, one, two, three) TORCHYARD_ALIKE(TORCHYARD_IMPORT, T, one, two, three)
TORCHYARD_FLOATING(TORCHYARD_IMPORTS)
}  // namespace torchyard_opencl
namespace metal {
#define TORCHYARD_FORWARDS(T, one, two, three)           \
  TORCHYARD_ALIKE(TORCHYARD_FORWARD, T, one, two, three) \
  TORCHYARD_BY_HAND(T)
TORCHYARD_FLOATING(TORCHYARD_FORWARDS)
namespace fast {
TORCHYARD_SINGLE(TORCHYARD_FORWARDS)
}
namespace precise {
TORCHYARD_SINGLE(TORCHYARD_FORWARDS)
}
TORCHYARD_INLINE bfloat max(bfloat x, bfloat y) { return bfloat(max(float(x), float(y))); }
TORCHYARD_INLINE bfloat min(bfloat x, bfloat y) { return bfloat(min(float(x), float(y))); }

#define TORCHYARD_OF_SCALARS(T, Bits, kExponent)                                              \
  TORCHYARD_INLINE T abs(T x) { return fabs(x); }                                             \
  TORCHYARD_INLINE bool isinf(T x) {                                                          \
    return (as_type<Bits>(x) & Bits(~Bits(0)) >> 1) == kExponent;                             \
  }                                                                                           \
  TORCHYARD_INLINE bool isnan(T x) { return x != x; }                                         \
  TORCHYARD_INLINE bool isfinite(T x) { return (as_type<Bits>(x) & kExponent) != kExponent; } \
  TORCHYARD_INLINE bool signbit(T x) { return as_type<Bits>(x) >> (sizeof(T) * 8 - 1) != 0; } \
  TORCHYARD_INLINE T select(T otherwise, T x, bool where) { return where ? x : otherwise; }   \
  TORCHYARD_INLINE T sign(T x) {                                                              \
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : isnan(x) ? T(0) : x;                          \
  }                                                                                           \
  TORCHYARD_INLINE T saturate(T x) { return clamp(x, T(0), T(1)); }                           \
  TORCHYARD_INLINE T mix(T x, T y, T a) { return x + (y - x) * a; }                           \
  TORCHYARD_INLINE T step(T edge, T x) { return x < edge ? T(0) : T(1); }
TORCHYARD_OF_SCALARS(half, ushort, 0x7c00)
TORCHYARD_OF_SCALARS(float, uint, 0x7f800000)
TORCHYARD_INLINE float ldexp(float x, int exponent) { return x * exp2(float(exponent)); }
TORCHYARD_INLINE float dot(float2 x, float2 y) { return x.x * y.x + x.y * y.y; }
TORCHYARD_INLINE float dot(float3 x, float3 y) { return dot(x.xy, y.xy) + x.z * y.z; }
TORCHYARD_INLINE float dot(float4 x, float4 y) { return dot(x.xyz, y.xyz) + x.w * y.w; }
TORCHYARD_INLINE float3 cross(float3 x, float3 y) { return x.yzx * y.zxy - x.zxy * y.yzx; }
#define TORCHYARD_LENGTHS(T)                                          \
  TORCHYARD_INLINE float length(T x) { return sqrt(dot(x, x)); }      \
  TORCHYARD_INLINE float distance(T x, T y) { return length(x - y); } \
  TORCHYARD_INLINE T normalize(T x) { return x / length(x); }
TORCHYARD_LENGTHS(float2)
TORCHYARD_LENGTHS(float3)
TORCHYARD_LENGTHS(float4)
TORCHYARD_INLINE bool all(bool x) { return x; }
TORCHYARD_INLINE bool any(bool x) { return x; }

#define TORCHYARD_INTEGER(T)                                                               \
  TORCHYARD_INLINE T abs(T x) { return x < T(0) ? T(-x) : x; }                             \
  TORCHYARD_INLINE T max(T x, T y) { return x < y ? y : x; }                               \
  TORCHYARD_INLINE T min(T x, T y) { return y < x ? y : x; }                               \
  TORCHYARD_INLINE T clamp(T x, T low, T high) { return min(max(x, low), high); }          \
  TORCHYARD_INLINE T absdiff(T x, T y) { return x < y ? T(y - x) : T(x - y); }             \
  TORCHYARD_INLINE T popcount(T x) {                                                       \
    return T(__builtin_popcountg(ulong(x) & ~0ul >> (64 - 8 * sizeof(T))));                \
  }                                                                                        \
  TORCHYARD_INLINE T clz(T x) {                                                            \
    const ulong whole = ulong(x) & ~0ul >> (64 - 8 * sizeof(T));                           \
    return T(__builtin_clzg(whole, 64) - int(64 - 8 * sizeof(T)));                         \
  }                                                                                        \
  TORCHYARD_INLINE T ctz(T x) {                                                            \
    return T(__builtin_ctzg(ulong(x) & ~0ul >> (64 - 8 * sizeof(T)), int(8 * sizeof(T)))); \
  }
TORCHYARD_INTEGER(char)
TORCHYARD_INTEGER(uchar)
TORCHYARD_INTEGER(short)
TORCHYARD_INTEGER(ushort)
TORCHYARD_INTEGER(int)
TORCHYARD_INTEGER(uint)
TORCHYARD_INTEGER(long)
TORCHYARD_INTEGER(ulong)
TORCHYARD_INLINE int mulhi(int x, int y) { return int((long(x) * long(y)) >> 32); }
TORCHYARD_INLINE uint mulhi(uint x, uint y) { return uint((ulong(x) * ulong(y)) >> 32); }
TORCHYARD_INLINE int mul24(int x, int y) { return x * y; }
TORCHYARD_INLINE uint mul24(uint x, uint y) { return x * y; }
TORCHYARD_INLINE int mad24(int x, int y, int z) { return x * y + z; }
TORCHYARD_INLINE uint mad24(uint x, uint y, uint z) { return x * y + z; }

// Flags are those of OpenCL: 1 of threadgroup memory, 2 of device memory.
TORCHYARD_INLINE uint fences(mem_flags flags) {
  return (int(flags) & int(mem_flags::mem_threadgroup) ? 1u : 0u) |
         (int(flags) & int(mem_flags::mem_device) ? 2u : 0u);
}
TORCHYARD_INLINE void threadgroup_barrier(mem_flags flags) {
  ::torchyard_opencl::barrier(fences(flags));
}
TORCHYARD_INLINE void simdgroup_barrier(mem_flags flags) {
  ::torchyard_opencl::sub_group_barrier(fences(flags));
}

}  // namespace metal

#include "lanes.h"
