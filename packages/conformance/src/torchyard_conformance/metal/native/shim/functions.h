// Functions of metal_stdlib on floating-point values, by the C library's; fast and precise alike.
#pragma once
#include "vectors.h"

namespace metal {

// A function of float on halves, bfloats and vectors of them.
#define TORCHYARD_UNARY(name, expression)                           \
  TORCHYARD_INLINE float name(float x) { return expression; }       \
  TORCHYARD_INLINE half name(half x) { return name(float(x)); }     \
  TORCHYARD_INLINE bfloat name(bfloat x) { return name(float(x)); } \
  template <class T, int N>                                         \
  TORCHYARD_INLINE vec<T, N> name(vec<T, N> x) {                    \
    vec<T, N> result;                                               \
    for (int i = 0; i < N; i++) result.parts[i] = name(x.parts[i]); \
    return result;                                                  \
  }
TORCHYARD_UNARY(acos, __builtin_acosf(x))
TORCHYARD_UNARY(acosh, __builtin_acoshf(x))
TORCHYARD_UNARY(asin, __builtin_asinf(x))
TORCHYARD_UNARY(asinh, __builtin_asinhf(x))
TORCHYARD_UNARY(atan, __builtin_atanf(x))
TORCHYARD_UNARY(atanh, __builtin_atanhf(x))
TORCHYARD_UNARY(ceil, __builtin_ceilf(x))
TORCHYARD_UNARY(cos, __builtin_cosf(x))
TORCHYARD_UNARY(cosh, __builtin_coshf(x))
TORCHYARD_UNARY(cospi, __builtin_cosf(M_PI_F* x))
TORCHYARD_UNARY(exp, __builtin_expf(x))
TORCHYARD_UNARY(exp10, __builtin_powf(10.0f, x))
TORCHYARD_UNARY(exp2, __builtin_exp2f(x))
TORCHYARD_UNARY(fabs, __builtin_fabsf(x))
TORCHYARD_UNARY(floor, __builtin_floorf(x))
TORCHYARD_UNARY(fract, x - __builtin_floorf(x))
TORCHYARD_UNARY(log, __builtin_logf(x))
TORCHYARD_UNARY(log10, __builtin_log10f(x))
TORCHYARD_UNARY(log2, __builtin_log2f(x))
TORCHYARD_UNARY(rint, __builtin_rintf(x))
TORCHYARD_UNARY(round, __builtin_roundf(x))
TORCHYARD_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
TORCHYARD_UNARY(saturate, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
TORCHYARD_UNARY(sin, __builtin_sinf(x))
TORCHYARD_UNARY(sinh, __builtin_sinhf(x))
TORCHYARD_UNARY(sinpi, __builtin_sinf(M_PI_F* x))
TORCHYARD_UNARY(sqrt, __builtin_sqrtf(x))
TORCHYARD_UNARY(tan, __builtin_tanf(x))
TORCHYARD_UNARY(tanh, __builtin_tanhf(x))
TORCHYARD_UNARY(trunc, __builtin_truncf(x))
#undef TORCHYARD_UNARY

TORCHYARD_INLINE float sign(float x) {
  return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f;
}

#define TORCHYARD_TEST(name, expression)                            \
  TORCHYARD_INLINE bool name(float x) { return expression; }        \
  template <class T, int N>                                         \
  TORCHYARD_INLINE vec<bool, N> name(vec<T, N> x) {                 \
    vec<bool, N> result;                                            \
    for (int i = 0; i < N; i++) result.parts[i] = name(x.parts[i]); \
    return result;                                                  \
  }
TORCHYARD_TEST(isnan, __builtin_isnan(x))
TORCHYARD_TEST(isinf, __builtin_isinf(x))
TORCHYARD_TEST(isfinite, __builtin_isfinite(x))
TORCHYARD_TEST(isnormal, __builtin_isnormal(x))
TORCHYARD_TEST(signbit, __builtin_signbit(x))
#undef TORCHYARD_TEST

#define TORCHYARD_BINARY(name, expression)                                              \
  TORCHYARD_INLINE float name(float x, float y) { return expression; }                  \
  TORCHYARD_INLINE half name(half x, half y) { return name(float(x), float(y)); }       \
  TORCHYARD_INLINE bfloat name(bfloat x, bfloat y) { return name(float(x), float(y)); } \
  template <class T, int N>                                                             \
  TORCHYARD_INLINE vec<T, N> name(vec<T, N> x, vec<T, N> y) {                           \
    vec<T, N> result;                                                                   \
    for (int i = 0; i < N; i++) result.parts[i] = name(x.parts[i], y.parts[i]);         \
    return result;                                                                      \
  }
TORCHYARD_BINARY(atan2, __builtin_atan2f(x, y))
TORCHYARD_BINARY(copysign, __builtin_copysignf(x, y))
TORCHYARD_BINARY(fdim, __builtin_fdimf(x, y))
TORCHYARD_BINARY(fmax, __builtin_fmaxf(x, y))
TORCHYARD_BINARY(fmin, __builtin_fminf(x, y))
TORCHYARD_BINARY(fmod, __builtin_fmodf(x, y))
TORCHYARD_BINARY(nextafter, __builtin_nextafterf(x, y))
TORCHYARD_BINARY(pow, __builtin_powf(x, y))
TORCHYARD_BINARY(powr, __builtin_powf(x, y))
TORCHYARD_BINARY(step, y < x ? 0.0f : 1.0f)
#undef TORCHYARD_BINARY

TORCHYARD_INLINE float ldexp(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
TORCHYARD_INLINE float frexp(float x, int& exponent) { return __builtin_frexpf(x, &exponent); }
TORCHYARD_INLINE float modf(float x, float& whole) {
  whole = __builtin_truncf(x);
  return __builtin_isinf(x) ? __builtin_copysignf(0.0f, x) : x - whole;
}
TORCHYARD_INLINE float sincos(float x, float& cosine) {
  cosine = __builtin_cosf(x);
  return __builtin_sinf(x);
}
TORCHYARD_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TORCHYARD_INLINE half fma(half a, half b, half c) { return __builtin_fmaf(a, b, c); }
template <class T, int N>
TORCHYARD_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  vec<T, N> result;
  for (int i = 0; i < N; i++) result.parts[i] = fma(a.parts[i], b.parts[i], c.parts[i]);
  return result;
}
template <class T>
TORCHYARD_INLINE T mix(T a, T b, T part) {
  return a + (b - a) * part;
}

// Of a number and NaN, the number.
template <class T>
TORCHYARD_INLINE T max(T a, T b) {
  if constexpr (count_v<T> > 1) {
    T result;
    for (int i = 0; i < count_v<T>; i++) result.parts[i] = max(a.parts[i], b.parts[i]);
    return result;
  } else {
    return a != a ? b : a < b ? b : a;
  }
}
template <class T>
TORCHYARD_INLINE T min(T a, T b) {
  if constexpr (count_v<T> > 1) {
    T result;
    for (int i = 0; i < count_v<T>; i++) result.parts[i] = min(a.parts[i], b.parts[i]);
    return result;
  } else {
    return a != a ? b : b < a ? b : a;
  }
}
template <class T>
TORCHYARD_INLINE T max3(T a, T b, T c) {
  return max(max(a, b), c);
}
template <class T>
TORCHYARD_INLINE T min3(T a, T b, T c) {
  return min(min(a, b), c);
}
template <class T>
TORCHYARD_INLINE T median3(T a, T b, T c) {
  return max(min(a, b), min(max(a, b), c));
}
template <class T>
TORCHYARD_INLINE T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <class T>
TORCHYARD_INLINE T smoothstep(T low, T high, T x) {
  const T part = clamp((x - low) / (high - low), T(0.0f), T(1.0f));
  return part * part * (T(3.0f) - T(2.0f) * part);
}
template <class T>
TORCHYARD_INLINE T select(T no, T yes, bool condition) {
  return condition ? yes : no;
}
template <class T, int N>
TORCHYARD_INLINE vec<T, N> select(vec<T, N> no, vec<T, N> yes, vec<bool, N> condition) {
  vec<T, N> result;
  for (int i = 0; i < N; i++) result.parts[i] = condition.parts[i] ? yes.parts[i] : no.parts[i];
  return result;
}

template <class T, int N>
TORCHYARD_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T result = a.parts[0] * b.parts[0];
  for (int i = 1; i < N; i++) result = result + a.parts[i] * b.parts[i];
  return result;
}
template <class T, int N>
TORCHYARD_INLINE T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
TORCHYARD_INLINE T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T, int N>
TORCHYARD_INLINE T distance(vec<T, N> a, vec<T, N> b) {
  return length(a - b);
}
template <class T, int N>
TORCHYARD_INLINE vec<T, N> normalize(vec<T, N> a) {
  return a * vec<T, N>(rsqrt(dot(a, a)));
}
template <class T>
TORCHYARD_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

namespace fast = ::metal;
namespace precise = ::metal;

}  // namespace metal
