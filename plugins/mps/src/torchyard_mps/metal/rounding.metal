// Arithmetic that Metal lacks or defines otherwise than torch: of integers, of NaN, of remainders.

namespace torchyard {

inline bool signbit(float x) { return as_type<int>(x) < 0; }

// Of NaN and a number, NaN.
inline float maximum(float x, float y) { return x != x ? x : y != y ? y : x < y ? y : x; }
inline float minimum(float x, float y) { return x != x ? x : y != y ? y : y < x ? y : x; }

inline float trunc(float x) { return precise::trunc(x); }
inline float ceil(float x) { return precise::ceil(x); }
inline float floor(float x) { return precise::floor(x); }
// Of two nearest whole numbers the even one.
inline float round_even(float x) { return precise::rint(x); }

template <typename T>
inline T sign(T x) {
  return T(x > T(0)) - T(x < T(0));
}

inline float fmod(float x, float y) { return precise::fmod(x, y); }

// x - floor(x / y) y, which has y's sign.
inline float remainder(float x, float y) {
  const float rest = fmod(x, y);
  return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}

// floor(x / y) as Python defines it, corrected by the exact remainder.
inline float floor_divide(float x, float y) {
  if (y == 0.0f) return x / y;
  const float rest = fmod(x, y);
  float quotient = (x - rest) / y;
  if (rest != 0.0f && (rest < 0.0f) != (y < 0.0f)) quotient -= 1.0f;
  const float low = floor(quotient);
  return quotient - low > 0.5f ? low + 1.0f : low;
}

// Rounded to 0; of a division by 0, which torch refuses, 0.
template <typename T>
inline T integer_trunc_divide(T x, T y) {
  return y == T(0) ? T(0) : T(x / y);
}
template <typename T>
inline T integer_fmod(T x, T y) {
  return T(x - integer_trunc_divide(x, y) * y);
}
template <typename T>
inline T integer_remainder(T x, T y) {
  const T rest = integer_fmod(x, y);
  return rest != T(0) && (rest < T(0)) != (y < T(0)) ? T(rest + y) : rest;
}
template <typename T>
inline T integer_floor_divide(T x, T y) {
  const T quotient = integer_trunc_divide(x, y), rest = T(x - quotient * y);
  return rest != T(0) && (rest < T(0)) != (y < T(0)) ? T(quotient - 1) : quotient;
}

// x^y by squaring, with integers' wrap-around; 1 / x^-y, rounded to 0, below 0.
template <typename T>
inline T integer_power(T x, T y) {
  if (y < T(0)) return x == T(1) ? T(1) : x == T(-1) ? T((y & T(1)) != T(0) ? -1 : 1) : T(0);
  ulong result = 1, base = ulong(x);
  for (T left = y; left != T(0); left = T(left >> 1)) {
    if ((left & T(1)) != T(0)) result *= base;
    base *= base;
  }
  return T(result);
}

}  // namespace torchyard
