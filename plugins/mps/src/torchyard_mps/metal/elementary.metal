// Elementary functions of torch that Metal lacks, and those that it has, by torch's names. Errors are
// a few units in the last place; infinities and NaN are torch's.

namespace torchyard {

constant float kPi = 3.141592653589793f;
constant float kLn2 = 0.6931471805599453f;

inline float exp(float x) { return precise::exp(x); }
inline float exp2(float x) { return precise::exp2(x); }
inline float log(float x) { return precise::log(x); }
inline float log2(float x) { return precise::log2(x); }
inline float sqrt(float x) { return precise::sqrt(x); }
inline float rsqrt(float x) { return precise::rsqrt(x); }
inline float sin(float x) { return precise::sin(x); }
inline float cos(float x) { return precise::cos(x); }
inline float tan(float x) { return precise::tan(x); }
inline float acos(float x) { return precise::acos(x); }
inline float asin(float x) { return precise::asin(x); }
inline float atan(float x) { return precise::atan(x); }
inline float atan2(float y, float x) { return precise::atan2(y, x); }
inline float copysign(float x, float y) { return signbit(y) ? -fabs(x) : fabs(x); }

// e^x - 1 without cancellation near 0, where the first term left out is below 2e-9 of x.
inline float expm1(float x) {
  if (!(fabs(x) < 0.4f)) return exp(x) - 1.0f;
  float near = 1.0f + x * 0.125f;
  near = 1.0f + x * 0.14285714285714285f * near;
  near = 1.0f + x * 0.16666666666666666f * near;
  near = 1.0f + x * 0.2f * near;
  near = 1.0f + x * 0.25f * near;
  near = 1.0f + x * 0.3333333333333333f * near;
  near = 1.0f + x * 0.5f * near;
  return x * near;
}

// log(1 + x) without cancellation near 0: 2 atanh(x / (2 + x)) as a series there.
inline float log1p(float x) {
  if (!(fabs(x) < 0.35f)) return log(1.0f + x);
  const float s = x / (2.0f + x), z = s * s;
  const float series =
      0.3333333333333333f + z * (0.2f + z * (0.14285714285714285f + z * 0.1111111111111111f));
  return 2.0f * s + 2.0f * s * z * series;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// e / (e + 2) for e = e^(2|x|) - 1, with x's sign.
inline float tanh(float x) {
  if (x != x) return x;
  const float e = expm1(2.0f * min(fabs(x), 20.0f));
  return copysign(e / (e + 2.0f), x);
}

inline float sinh(float x) {
  const float size = fabs(x), e = expm1(min(size, 1.0f)), part = exp(0.5f * size);
  const float large = 0.5f * part * part - 0.5f / (part * part);
  return copysign(size < 1.0f ? 0.5f * (e + e / (e + 1.0f)) : large, x);
}
inline float cosh(float x) {
  const float part = exp(0.5f * fabs(x));
  return 0.5f * part * part + 0.5f / (part * part);
}

// sin(pi x) / (pi x), 1 at 0.
inline float sinc(float x) { return x == 0.0f ? 1.0f : sin(x * kPi) / (x * kPi); }

inline float asinh(float x) {
  const float size = fabs(x);
  if (size > 1e9f) return copysign(log(size) + kLn2, x);
  return copysign(log1p(size + size * size / (1.0f + sqrt(size * size + 1.0f))), x);
}
inline float acosh(float x) {
  if (x < 1.0f) return NAN;
  const float t = x - 1.0f;
  return x > 1e9f ? log(x) + kLn2 : log1p(t + sqrt(2.0f * t + t * t));
}
inline float atanh(float x) {
  const float size = fabs(x);
  return copysign(0.5f * log1p(2.0f * size / (1.0f - size)), x);
}

inline float hypot(float x, float y) {
  const float a = fabs(x), b = fabs(y), large = a > b ? a : b, small = a > b ? b : a;
  if (a == INFINITY || b == INFINITY) return INFINITY;
  if (a != a || b != b) return a + b;
  const float ratio = large == 0.0f ? 0.0f : small / large;
  return large * sqrt(1.0f + ratio * ratio);
}

// |x|^y = 2^(y log2 |x|), with the signs and corners of C's pow.
inline float power(float x, float y) {
  if (y == 0.0f || x == 1.0f) return 1.0f;
  if (x != x || y != y) return x + y;
  const float size = fabs(x);
  const bool whole = floor(y) == y;
  const bool odd = whole && fabs(y) < 16777216.0f && floor(y * 0.5f) * 2.0f != y;
  if (x < 0.0f && size < INFINITY && !whole && (size != 1.0f || fabs(y) < INFINITY)) return NAN;
  const float result = size == 1.0f ? 1.0f : exp2(y * log2(size));
  return signbit(x) && odd ? -result : result;
}

// x log y, 0 where x is 0, whatever y is but NaN.
inline float xlogy(float x, float y) { return y != y ? y : x == 0.0f ? 0.0f : x * log(y); }

}  // namespace torchyard
