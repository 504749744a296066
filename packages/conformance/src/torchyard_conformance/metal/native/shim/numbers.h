// Metal's scalar types: half and bfloat are computed in float and rounded after each operation.
#pragma once
#include "interface.h"

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using size_t = decltype(sizeof(0));
using ptrdiff_t = long;

namespace metal {

template <class To, class From>
TORCHYARD_INLINE To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
  return __builtin_bit_cast(To, value);
}

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class A, class B>
struct is_same {
  static constexpr bool value = is_same_v<A, B>;
};
template <bool Yes, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool Yes, class T = void>
using enable_if_t = typename enable_if<Yes, T>::type;
template <bool Yes, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool Yes, class A, class B>
using conditional_t = typename conditional<Yes, A, B>::type;
template <class T>
struct remove_cv {
  using type = T;
};
template <class T>
struct remove_cv<const T> {
  using type = T;
};
template <class T>
struct remove_cv<volatile T> {
  using type = T;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;

template <class T>
inline constexpr bool is_integral_v = false;
#define TORCHYARD_INTEGER(T) \
  template <>                \
  inline constexpr bool is_integral_v<T> = true;
TORCHYARD_INTEGER(bool)
TORCHYARD_INTEGER(char)
TORCHYARD_INTEGER(signed char)
TORCHYARD_INTEGER(unsigned char)
TORCHYARD_INTEGER(short)
TORCHYARD_INTEGER(unsigned short)
TORCHYARD_INTEGER(int)
TORCHYARD_INTEGER(unsigned int)
TORCHYARD_INTEGER(long)
TORCHYARD_INTEGER(unsigned long)
TORCHYARD_INTEGER(long long)
TORCHYARD_INTEGER(unsigned long long)
#undef TORCHYARD_INTEGER

// Metal has no double; it is here so that a literal that the rewriting missed still converts.
template <class T>
inline constexpr bool is_native_v = is_integral_v<T> || is_same_v<T, float> || is_same_v<T, double>;

struct HalfFormat {
  static constexpr const char* kName = "half";

  static TORCHYARD_INLINE ushort encode(float value) {
    const uint whole = __builtin_bit_cast(uint, value);
    const uint sign = (whole >> 16) & 0x8000u, size = whole & 0x7fffffffu;
    if (size > 0x7f800000u) return static_cast<ushort>(sign | 0x7e00u);
    if (size >= 0x477ff000u) {  // 65520 and more round to infinity
      if (size != 0x7f800000u) torchyard_metal::overflowed(kName, value);
      return static_cast<ushort>(sign | 0x7c00u);
    }
    if (size < 0x38800000u) {  // subnormal: an addition rounds to multiples of 2^-24
      const float shifted = __builtin_bit_cast(float, size) + 0.5f;
      return static_cast<ushort>(sign | (__builtin_bit_cast(uint, shifted) - 0x3f000000u));
    }
    const uint rounded = size + 0xc8000fffu + ((size >> 13) & 1u);
    return static_cast<ushort>(sign | ((rounded >> 13) & 0x7fffu));
  }

  static TORCHYARD_INLINE float decode(ushort bits) {
    const uint sign = static_cast<uint>(bits & 0x8000u) << 16, size = bits & 0x7fffu;
    if (size >= 0x7c00u)
      return __builtin_bit_cast(float, sign | 0x7f800000u | (size & 0x3ffu) << 13);
    // 2^112 moves the exponent of a half to a float's, of subnormals too.
    const float scaled = __builtin_bit_cast(float, size << 13) * 0x1p112f;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint, scaled) | sign);
  }
};

struct BfloatFormat {
  static constexpr const char* kName = "bfloat";

  static TORCHYARD_INLINE ushort encode(float value) {
    const uint whole = __builtin_bit_cast(uint, value), size = whole & 0x7fffffffu;
    if (size > 0x7f800000u) return static_cast<ushort>((whole >> 16) | 0x40u);
    const ushort rounded = static_cast<ushort>((whole + 0x7fffu + ((whole >> 16) & 1u)) >> 16);
    if (size != 0x7f800000u && (rounded & 0x7fffu) == 0x7f80u)
      torchyard_metal::overflowed(kName, value);
    return rounded;
  }

  static TORCHYARD_INLINE float decode(ushort bits) {
    return __builtin_bit_cast(float, static_cast<uint>(bits) << 16);
  }
};

// A float of 16 bits. Conversions to and from float are implicit, as in Metal.
template <class Format>
struct Short {
  ushort bits;

  Short() = default;
  template <class T, class = enable_if_t<is_native_v<T>>>
  TORCHYARD_INLINE Short(T value) : bits(Format::encode(static_cast<float>(value))) {}
  TORCHYARD_INLINE operator float() const { return Format::decode(bits); }

  TORCHYARD_INLINE Short operator-() const { return from(static_cast<ushort>(bits ^ 0x8000u)); }
  TORCHYARD_INLINE Short operator+() const { return *this; }
  static TORCHYARD_INLINE Short from(ushort bits) {
    Short made;
    made.bits = bits;
    return made;
  }
#define TORCHYARD_ASSIGNING(op)                                            \
  template <class T>                                                       \
  TORCHYARD_INLINE Short& operator op## = (T other) {                      \
    *this = Short(static_cast<float>(*this) op static_cast<float>(other)); \
    return *this;                                                          \
  }
  TORCHYARD_ASSIGNING(+)
  TORCHYARD_ASSIGNING(-)
  TORCHYARD_ASSIGNING(*)
  TORCHYARD_ASSIGNING(/)
#undef TORCHYARD_ASSIGNING
};

// With another of its kind or an integer the result is rounded again; with a float it is a float.
#define TORCHYARD_BINARY(op)                                                                       \
  template <class F>                                                                               \
  TORCHYARD_INLINE Short<F> operator op(Short<F> a, Short<F> b) {                                  \
    return static_cast<float>(a) op static_cast<float>(b);                                         \
  }                                                                                                \
  template <class F, class T, class = enable_if_t<is_native_v<T>>>                                 \
  TORCHYARD_INLINE conditional_t<is_integral_v<T>, Short<F>, float> operator op(Short<F> a, T b) { \
    return static_cast<float>(a) op static_cast<float>(b);                                         \
  }                                                                                                \
  template <class F, class T, class = enable_if_t<is_native_v<T>>>                                 \
  TORCHYARD_INLINE conditional_t<is_integral_v<T>, Short<F>, float> operator op(T a, Short<F> b) { \
    return static_cast<float>(a) op static_cast<float>(b);                                         \
  }
TORCHYARD_BINARY(+)
TORCHYARD_BINARY(-)
TORCHYARD_BINARY(*)
TORCHYARD_BINARY(/)
#undef TORCHYARD_BINARY
#define TORCHYARD_COMPARISON(op)                                   \
  template <class F>                                               \
  TORCHYARD_INLINE bool operator op(Short<F> a, Short<F> b) {      \
    return static_cast<float>(a) op static_cast<float>(b);         \
  }                                                                \
  template <class F, class T, class = enable_if_t<is_native_v<T>>> \
  TORCHYARD_INLINE bool operator op(Short<F> a, T b) {             \
    return static_cast<float>(a) op static_cast<float>(b);         \
  }                                                                \
  template <class F, class T, class = enable_if_t<is_native_v<T>>> \
  TORCHYARD_INLINE bool operator op(T a, Short<F> b) {             \
    return static_cast<float>(a) op static_cast<float>(b);         \
  }
TORCHYARD_COMPARISON(<)
TORCHYARD_COMPARISON(<=)
TORCHYARD_COMPARISON(>)
TORCHYARD_COMPARISON(>=)
TORCHYARD_COMPARISON(==)
TORCHYARD_COMPARISON(!=)
#undef TORCHYARD_COMPARISON

}  // namespace metal

using half = metal::Short<metal::HalfFormat>;
using bfloat = metal::Short<metal::BfloatFormat>;

namespace metal {

template <class T>
inline constexpr bool is_floating_point_v =
    is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T>
struct is_floating_point {
  static constexpr bool value = is_floating_point_v<T>;
};
template <class T>
struct is_integral {
  static constexpr bool value = is_integral_v<T>;
};

template <class T>
struct numeric_limits {
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr int digits = sizeof(T) * 8 - is_signed;
  static constexpr T max() { return T(~0ull >> (64 - digits)); }
  static constexpr T min() { return is_signed ? T(-max() - 1) : T(0); }
  static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  static constexpr float max() { return __FLT_MAX__; }
  static constexpr float min() { return __FLT_MIN__; }
  static constexpr float lowest() { return -__FLT_MAX__; }
  static constexpr float epsilon() { return __FLT_EPSILON__; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
template <>
struct numeric_limits<half> {
  static half max() { return half::from(0x7bff); }
  static half min() { return half::from(0x0400); }
  static half lowest() { return half::from(0xfbff); }
  static half epsilon() { return half::from(0x1400); }
  static half infinity() { return half::from(0x7c00); }
  static half quiet_NaN() { return half::from(0x7e00); }
};
template <>
struct numeric_limits<bfloat> {
  static bfloat max() { return bfloat::from(0x7f7f); }
  static bfloat min() { return bfloat::from(0x0080); }
  static bfloat lowest() { return bfloat::from(0xff7f); }
  static bfloat epsilon() { return bfloat::from(0x3c00); }
  static bfloat infinity() { return bfloat::from(0x7f80); }
  static bfloat quiet_NaN() { return bfloat::from(0x7fc0); }
};

}  // namespace metal

TORCHYARD_INLINE half operator""_half(long double value) { return static_cast<float>(value); }
TORCHYARD_INLINE bfloat operator""_bfloat(long double value) { return static_cast<float>(value); }

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT __FLT_MAX__
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define HALF_MAX metal::numeric_limits<half>::max()
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (2u * __INT_MAX__ + 1u)
#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_SQRT2_F 1.41421356237309504880f
