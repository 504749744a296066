// Special functions: the error function and its kin, gamma's logarithm and its derivatives, Bessel's.

namespace torchyard {

// Beyond 0.5 the Chebyshev fit of Numerical Recipes 6.2, relative 1.2e-7.
inline float erfc_far(float size) {
  const float t = 1.0f / (1.0f + 0.5f * size);
  float p = -0.82215223f + t * 0.17087277f;
  p = -1.13520398f + t * (1.48851587f + t * p);
  p = 0.09678418f + t * (-0.18628806f + t * (0.27886807f + t * p));
  p = -1.26551223f + t * (1.00002368f + t * (0.37409196f + t * p));
  return size > 12.0f ? 0.0f : t * exp(-size * size + p);
}

// Below 0.5 Taylor's series: the first term left out is below 2e-9 of x.
inline float erf(float x) {
  const float size = fabs(x);
  if (x != x) return x;
  if (size >= 0.5f) return copysign(1.0f - erfc_far(size), x);
  const float z = x * x;
  float p = -7.575757575757576e-4f + z * 1.0683760683760684e-4f;
  p = -0.023809523809523808f + z * (0.004629629629629629f + z * p);
  p = -0.3333333333333333f + z * (0.1f + z * p);
  return 1.1283791670955126f * x * (1.0f + z * p);
}

inline float erfc(float x) {
  const float size = fabs(x);
  if (x != x) return x;
  if (size < 0.5f) return 1.0f - erf(x);
  return x < 0.0f ? 2.0f - erfc_far(size) : erfc_far(size);
}

// Giles, "Approximating the erfinv function", single precision.
inline float erfinv(float x) {
  const float size = fabs(x);
  if (size > 1.0f) return NAN;
  if (size == 1.0f) return copysign(INFINITY, x);
  const float w = size > 0.5f ? -log((1.0f - x) * (1.0f + x)) : -log1p(-x * x);
  if (w < 5.0f) {
    const float a = w - 2.5f;
    float p = 3.43273939e-07f + 2.81022636e-08f * a;
    p = -4.39150654e-06f + a * (-3.5233877e-06f + a * p);
    p = -0.00125372503f + a * (0.00021858087f + a * p);
    p = 1.50140941f + a * (0.246640727f + a * (-0.00417768164f + a * p));
    return x * p;
  }
  const float c = sqrt(w) - 3.0f;
  float r = 0.000100950558f - 0.000200214257f * c;
  r = -0.00367342844f + c * (0.00134934322f + c * r);
  r = -0.0076224613f + c * (0.00573950773f + c * r);
  r = 2.83297682f + c * (1.00167406f + c * (0.00943887047f + c * r));
  return x * r;
}

// |sin(pi x)|, exactly 0 at whole numbers.
inline float sine_of_pi(float x) {
  const float rest = x - floor(x);
  return sin((rest > 0.5f ? 1.0f - rest : rest) * kPi);
}

// log gamma for x > 0: shifted beyond 8, then Stirling's series.
inline float lgamma_positive(float x) {
  const bool small = x < 8.0f;
  const float y = small ? x + 8.0f : x, z = 1.0f / (y * y);
  const float series =
      (0.08333333333333333f - z * (0.002777777777777778f - z * 7.936507936507937e-4f)) / y;
  // (y - 1/2) (log y - 1) - 1/2 + log(2 pi) / 2, so that nothing of the size of y log y cancels.
  const float stirling = (y - 0.5f) * (log(y) - 1.0f) + 0.4189385332046727f + series;
  if (!small) return stirling;
  float product = x;
  for (int i = 1; i < 8; i++) product *= x + float(i);
  return stirling - log(product);
}

// log |gamma(x)|; below 0.5 by reflection.
inline float lgamma(float x) {
  if (fabs(x) == INFINITY) return INFINITY;
  const float positive = lgamma_positive(x < 0.5f ? 1.0f - x : x);
  if (!(x < 0.5f)) return positive;
  const float sine = sine_of_pi(x);
  return sine == 0.0f ? INFINITY : -(log(sine) - 1.1447298858494002f + positive);
}

// Its derivative; whole numbers below 0 give NaN, 0 gives an infinity.
inline float digamma(float x) {
  const bool low = x < 0.5f;
  const float y = low ? 1.0f - x : x;
  float shift = 0.0f;
  for (int i = 0; i < 6; i++) shift += y < 6.0f ? 1.0f / (y + float(i)) : 0.0f;
  const float far = y < 6.0f ? y + 6.0f : y, z = 1.0f / (far * far);
  const float series =
      z * (0.08333333333333333f - z * (0.008333333333333333f - z * 0.003968253968253968f));
  const float result = log(far) - 0.5f / far - series - shift;
  if (!low) return x == INFINITY ? x : result;
  if (x == 0.0f) return -1.0f / x;
  const float rest = x - floor(x);
  if (rest == 0.0f) return NAN;
  const float angle = (rest > 0.5f ? rest - 1.0f : rest) * kPi;
  return result - cos(angle) / sin(angle) * kPi;
}

inline float trigamma(float x) {
  const bool low = x < 0.5f;
  const float y = low ? 1.0f - x : x;
  float shift = 0.0f;
  for (int i = 0; i < 6; i++) {
    const float step = y + float(i);
    shift += y < 6.0f ? 1.0f / (step * step) : 0.0f;
  }
  const float far = y < 6.0f ? y + 6.0f : y, z = 1.0f / (far * far);
  const float series =
      0.16666666666666666f - z * (0.03333333333333333f - z * 0.023809523809523808f);
  const float result = 1.0f / far + 0.5f * z + z / far * series + shift, sine = sine_of_pi(x);
  return low ? 1.0f / (sine * sine) * 9.869604401089358f - result : result;
}

// Abramowitz and Stegun 9.8.1 to 9.8.4.
inline float i0(float x) {
  const float size = fabs(x);
  if (size < 3.75f) {
    const float t = size / 3.75f * (size / 3.75f);
    const float p = 0.2659732f + t * (0.0360768f + t * 0.0045813f);
    return 1.0f + t * (3.5156229f + t * (3.0899424f + t * (1.2067492f + t * p)));
  }
  if (size == INFINITY) return size;
  const float u = 3.75f / size, part = exp(0.5f * size);
  float q = -0.02057706f + u * (0.02635537f + u * (-0.01647633f + u * 0.00392377f));
  q = 0.00225319f + u * (-0.00157565f + u * (0.00916281f + u * q));
  q = 0.39894228f + u * (0.01328592f + u * q);
  return part * (part / sqrt(size)) * q;
}
inline float i1(float x) {
  const float size = fabs(x);
  if (size < 3.75f) {
    const float t = size / 3.75f * (size / 3.75f);
    const float p = 0.02658733f + t * (0.00301532f + t * 0.00032411f);
    return x * (0.5f + t * (0.87890594f + t * (0.51498869f + t * (0.15084934f + t * p))));
  }
  const float u = 3.75f / size, part = exp(0.5f * size);
  float q = 0.02282967f + u * (-0.02895312f + u * (0.01787654f - u * 0.00420059f));
  q = -0.00362018f + u * (0.00163801f + u * (-0.01031555f + u * q));
  q = 0.39894228f + u * (-0.03988024f + u * q);
  return copysign(part * (part / sqrt(size)) * q, x);
}

}  // namespace torchyard
