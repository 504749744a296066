// What <metal_stdlib> declares, for Clang's mode C++ for OpenCL, which has Metal's address spaces,
// vectors and half. Declared are overloads of the Metal Shading Language Specification,
// version 3.2, and no others, so that a call that is ambiguous to Apple's compiler is ambiguous
// here. Nothing is defined: a source is parsed and type-checked, and not run.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_non_portable_kernel_param_types : enable

#define device __global
#define thread __private
#define threadgroup __local

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#ifndef TORCHYARD_BFLOAT
typedef __bf16 bfloat;
#endif
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef decltype(sizeof(0)) size_t;
typedef long ptrdiff_t;

// A packed vector is aligned as its parts are.
#define TORCHYARD_VECTORS(T)                                                            \
  typedef T T##2 __attribute__((ext_vector_type(2)));                                   \
  typedef T T##3 __attribute__((ext_vector_type(3)));                                   \
  typedef T T##4 __attribute__((ext_vector_type(4)));                                   \
  typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(__alignof__(T)))); \
  typedef T packed_##T##3 __attribute__((ext_vector_type(3), aligned(__alignof__(T)))); \
  typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(__alignof__(T))));
TORCHYARD_VECTORS(char)
TORCHYARD_VECTORS(uchar)
TORCHYARD_VECTORS(short)
TORCHYARD_VECTORS(ushort)
TORCHYARD_VECTORS(int)
TORCHYARD_VECTORS(uint)
TORCHYARD_VECTORS(long)
TORCHYARD_VECTORS(ulong)
TORCHYARD_VECTORS(half)
#ifndef TORCHYARD_BFLOAT
TORCHYARD_VECTORS(bfloat)
#endif
TORCHYARD_VECTORS(float)
#undef TORCHYARD_VECTORS

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT __FLT_MAX__
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define HALF_MAX half(65504.0f)
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (2u * __INT_MAX__ + 1u)
#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_SQRT2_F 1.41421356237309504880f

// A macro for a scalar type and its vectors.
#define TORCHYARD_WITH_VECTORS(M, T) M(T) M(T##2) M(T##3) M(T##4)
#define TORCHYARD_UP_TO_32_BITS(M) \
  TORCHYARD_WITH_VECTORS(M, char)  \
  TORCHYARD_WITH_VECTORS(M, uchar) \
  TORCHYARD_WITH_VECTORS(M, short) \
  TORCHYARD_WITH_VECTORS(M, ushort) TORCHYARD_WITH_VECTORS(M, int) TORCHYARD_WITH_VECTORS(M, uint)
#define TORCHYARD_INTEGERS(M) \
  TORCHYARD_UP_TO_32_BITS(M) TORCHYARD_WITH_VECTORS(M, long) TORCHYARD_WITH_VECTORS(M, ulong)
#define TORCHYARD_FLOATS(M) TORCHYARD_WITH_VECTORS(M, half) TORCHYARD_WITH_VECTORS(M, float)

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

template <class To, class From>
To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  return __builtin_bit_cast(To, value);
}

template <class A, class B>
struct is_same {
  static constant constexpr bool value = false;
};
template <class A>
struct is_same<A, A> {
  static constant constexpr bool value = true;
};
template <class A, class B>
constant constexpr bool is_same_v = is_same<A, B>::value;
template <bool Yes, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool Yes, class T = void>
using enable_if_t = typename enable_if<Yes, T>::type;
template <bool Yes, class A, class B>
struct conditional {
  typedef A type;
};
template <class A, class B>
struct conditional<false, A, B> {
  typedef B type;
};
template <bool Yes, class A, class B>
using conditional_t = typename conditional<Yes, A, B>::type;

template <class T>
struct numeric_limits {
  static constant constexpr bool is_signed = T(-1) < T(0);
  static constant constexpr int digits = sizeof(T) * 8 - is_signed;
  static constexpr T max() { return T(~0ul >> (64 - digits)); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
};
#define TORCHYARD_LIMITS(T)         \
  template <>                       \
  struct numeric_limits<T> {        \
    static constexpr T max();       \
    static constexpr T min();       \
    static constexpr T lowest();    \
    static constexpr T epsilon();   \
    static constexpr T infinity();  \
    static constexpr T quiet_NaN(); \
  };
TORCHYARD_LIMITS(half)
TORCHYARD_LIMITS(bfloat)
TORCHYARD_LIMITS(float)

#define TORCHYARD_OF_ALL(T)    \
  T clamp(T x, T low, T high); \
  T max(T x, T y);             \
  T max3(T x, T y, T z);       \
  T median3(T x, T y, T z);    \
  T min(T x, T y);             \
  T min3(T x, T y, T z);
TORCHYARD_INTEGERS(TORCHYARD_OF_ALL)
TORCHYARD_FLOATS(TORCHYARD_OF_ALL)
TORCHYARD_OF_ALL(bfloat)

#define TORCHYARD_OF_INTEGERS(T)                             \
  T abs(T x);                                                \
  T absdiff(T x, T y);                                       \
  T addsat(T x, T y);                                        \
  T clz(T x);                                                \
  T ctz(T x);                                                \
  T extract_bits(T x, uint offset, uint bits);               \
  T hadd(T x, T y);                                          \
  T insert_bits(T base, T inserted, uint offset, uint bits); \
  T madhi(T a, T b, T c);                                    \
  T mulhi(T x, T y);                                         \
  T popcount(T x);                                           \
  T reverse_bits(T x);                                       \
  T rhadd(T x, T y);                                         \
  T rotate(T x, T y);                                        \
  T subsat(T x, T y);
TORCHYARD_INTEGERS(TORCHYARD_OF_INTEGERS)
int mul24(int x, int y);
uint mul24(uint x, uint y);
int mad24(int x, int y, int z);
uint mad24(uint x, uint y, uint z);

#define TORCHYARD_MATHEMATICS(T) \
  T acos(T x);                   \
  T acosh(T x);                  \
  T asin(T x);                   \
  T asinh(T x);                  \
  T atan(T x);                   \
  T atan2(T y, T x);             \
  T atanh(T x);                  \
  T ceil(T x);                   \
  T copysign(T x, T y);          \
  T cos(T x);                    \
  T cosh(T x);                   \
  T cospi(T x);                  \
  T divide(T x, T y);            \
  T exp(T x);                    \
  T exp10(T x);                  \
  T exp2(T x);                   \
  T fabs(T x);                   \
  T fdim(T x, T y);              \
  T floor(T x);                  \
  T fma(T x, T y, T z);          \
  T fmax(T x, T y);              \
  T fmin(T x, T y);              \
  T fmod(T x, T y);              \
  T fract(T x);                  \
  T log(T x);                    \
  T log10(T x);                  \
  T log2(T x);                   \
  T pow(T x, T y);               \
  T powr(T x, T y);              \
  T rint(T x);                   \
  T round(T x);                  \
  T rsqrt(T x);                  \
  T sin(T x);                    \
  T sinh(T x);                   \
  T sinpi(T x);                  \
  T sqrt(T x);                   \
  T tan(T x);                    \
  T tanh(T x);                   \
  T tanpi(T x);                  \
  T trunc(T x);
#define TORCHYARD_OF_FLOATS(T)      \
  TORCHYARD_MATHEMATICS(T)          \
  T abs(T x);                       \
  T mix(T x, T y, T a);             \
  T modf(T x, thread T& whole);     \
  T saturate(T x);                  \
  T sign(T x);                      \
  T sincos(T x, thread T& cosine);  \
  T smoothstep(T low, T high, T x); \
  T step(T edge, T x);
TORCHYARD_FLOATS(TORCHYARD_OF_FLOATS)
#define TORCHYARD_OF_SCALAR_FLOATS(T)     \
  T frexp(T x, thread int& exponent);     \
  int ilogb(T x);                         \
  bool isfinite(T x);                     \
  bool isinf(T x);                        \
  bool isnan(T x);                        \
  bool isnormal(T x);                     \
  bool isordered(T x, T y);               \
  bool isunordered(T x, T y);             \
  T ldexp(T x, int exponent);             \
  T nextafter(T x, T y);                  \
  T select(T otherwise, T x, bool where); \
  bool signbit(T x);
TORCHYARD_OF_SCALAR_FLOATS(half)
TORCHYARD_OF_SCALAR_FLOATS(float)
#define TORCHYARD_GEOMETRY(T) \
  float distance(T x, T y);   \
  float dot(T x, T y);        \
  float length(T x);          \
  T normalize(T x);
TORCHYARD_GEOMETRY(float2)
TORCHYARD_GEOMETRY(float3)
TORCHYARD_GEOMETRY(float4)
float3 cross(float3 x, float3 y);
bool all(bool x);
bool any(bool x);

// Variants of single precision.
#define TORCHYARD_VARIANTS(T) TORCHYARD_MATHEMATICS(T) TORCHYARD_OF_ALL(T)
namespace fast {
TORCHYARD_WITH_VECTORS(TORCHYARD_VARIANTS, float)
}
namespace precise {
TORCHYARD_WITH_VECTORS(TORCHYARD_VARIANTS, float)
}

enum class mem_flags : int { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags x, mem_flags y) { return mem_flags(int(x) | int(y)); }
constexpr mem_flags operator&(mem_flags x, mem_flags y) { return mem_flags(int(x) & int(y)); }
void threadgroup_barrier(mem_flags flags);
void simdgroup_barrier(mem_flags flags);

// Of 64 bits and of bfloat there are none.
#define TORCHYARD_LANES(name, T)                             \
  T name##_broadcast(T x, ushort lane);                      \
  T name##_broadcast_first(T x);                             \
  T name##_prefix_exclusive_product(T x);                    \
  T name##_prefix_exclusive_sum(T x);                        \
  T name##_prefix_inclusive_product(T x);                    \
  T name##_prefix_inclusive_sum(T x);                        \
  T name##_max(T x);                                         \
  T name##_min(T x);                                         \
  T name##_product(T x);                                     \
  T name##_shuffle(T x, ushort lane);                        \
  T name##_shuffle_and_fill_down(T x, T fill, ushort delta); \
  T name##_shuffle_and_fill_up(T x, T fill, ushort delta);   \
  T name##_shuffle_down(T x, ushort delta);                  \
  T name##_shuffle_rotate_down(T x, ushort delta);           \
  T name##_shuffle_rotate_up(T x, ushort delta);             \
  T name##_shuffle_up(T x, ushort delta);                    \
  T name##_shuffle_xor(T x, ushort mask);                    \
  T name##_sum(T x);
#define TORCHYARD_GROUPS(T) TORCHYARD_LANES(simd, T) TORCHYARD_LANES(quad, T)
TORCHYARD_UP_TO_32_BITS(TORCHYARD_GROUPS)
TORCHYARD_FLOATS(TORCHYARD_GROUPS)
#define TORCHYARD_BITS(T) \
  T simd_and(T x);        \
  T simd_or(T x);         \
  T simd_xor(T x);        \
  T quad_and(T x);        \
  T quad_or(T x);         \
  T quad_xor(T x);
TORCHYARD_UP_TO_32_BITS(TORCHYARD_BITS)
bool simd_all(bool x);
bool simd_any(bool x);
bool simd_is_first();
bool quad_all(bool x);
bool quad_any(bool x);
bool quad_is_first();
struct simd_vote {
  typedef ulong vote_t;
  vote_t bits;
  explicit constexpr simd_vote(vote_t bits = 0) : bits(bits) {}
  explicit constexpr operator vote_t() const { return bits; }
};
simd_vote simd_ballot(bool x);
simd_vote simd_active_threads_mask();

template <class T>
struct pair {
  typedef vec<T, 2> type;
};
#ifdef TORCHYARD_BFLOAT
template <>
struct pair<bfloat> {
  struct type {
    bfloat x, y;
  };
};
#endif
template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "Metal has simdgroup matrices of 8 x 8");
  static_assert(is_same_v<T, half> || is_same_v<T, bfloat> || is_same_v<T, float>,
                "Metal has simdgroup matrices of half, bfloat and float");
  typedef typename pair<T>::type Elements;
  Elements elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal);
  Elements& thread_elements();
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
template <class T, int C, int R>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value);
template <class T>
void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& to, device const T* from,
                    ulong elements_per_row = 8, ulong2 origin = 0, bool transposed = false);
template <class T>
void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& to, threadgroup const T* from,
                    ulong elements_per_row = 8, ulong2 origin = 0, bool transposed = false);
template <class T>
void simdgroup_store(simdgroup_matrix<T, 8, 8> from, device T* to, ulong elements_per_row = 8,
                     ulong2 origin = 0, bool transposed = false);
template <class T>
void simdgroup_store(simdgroup_matrix<T, 8, 8> from, threadgroup T* to, ulong elements_per_row = 8,
                     ulong2 origin = 0, bool transposed = false);
// Factors are of one type; sums are of it, or float.
template <class D, class T>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& to,
                                   simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b,
                                   simdgroup_matrix<D, 8, 8> c);
template <class D, class T>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& to, simdgroup_matrix<T, 8, 8> a,
                        simdgroup_matrix<T, 8, 8> b);

enum memory_order { memory_order_relaxed };
template <class T>
struct atomic {
  static_assert(sizeof(T) == 4, "Metal has atomic types of 32 bits");
  T value;
};
// Clang has types of its own by these names.
#define atomic_int torchyard_atomic_int
#define atomic_uint torchyard_atomic_uint
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
#define TORCHYARD_ATOMICS(space, T)                                                             \
  T atomic_exchange_explicit(volatile space atomic<T>* at, T desired, memory_order order);      \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>* at, thread T* expected,  \
                                             T desired, memory_order same, memory_order other); \
  T atomic_fetch_add_explicit(volatile space atomic<T>* at, T x, memory_order order);           \
  T atomic_fetch_and_explicit(volatile space atomic<T>* at, T x, memory_order order);           \
  T atomic_fetch_max_explicit(volatile space atomic<T>* at, T x, memory_order order);           \
  T atomic_fetch_min_explicit(volatile space atomic<T>* at, T x, memory_order order);           \
  T atomic_fetch_or_explicit(volatile space atomic<T>* at, T x, memory_order order);            \
  T atomic_fetch_sub_explicit(volatile space atomic<T>* at, T x, memory_order order);           \
  T atomic_fetch_xor_explicit(volatile space atomic<T>* at, T x, memory_order order);           \
  T atomic_load_explicit(volatile const space atomic<T>* at, memory_order order);               \
  void atomic_store_explicit(volatile space atomic<T>* at, T desired, memory_order order);
TORCHYARD_ATOMICS(device, int)
TORCHYARD_ATOMICS(device, uint)
TORCHYARD_ATOMICS(threadgroup, int)
TORCHYARD_ATOMICS(threadgroup, uint)

}  // namespace metal
