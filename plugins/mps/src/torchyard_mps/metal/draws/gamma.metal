// Gamma variables, and how their logarithm changes with the shape.

namespace torchyard {

// log(1 + x) - x + x^2 / 2 - x^3 / 3, which is near -x^4 / 4 at 0.
inline float log1p_less_cubic(float x) {
  if (!(fabs(x) < 0.2f)) return log1p_less_x(x) + x * x * (0.5f - x * 0.3333333333333333f);
  float series = 0.1f - x * (0.09090909090909091f - x * 0.08333333333333333f);
  series = 0.14285714285714285f - x * (0.125f - x * (0.1111111111111111f - x * series));
  series = 0.25f - x * (0.2f - x * (0.16666666666666666f - x * series));
  return -x * x * x * x * series;
}

struct Gamma {
  float value;
  float log_value;  // also where the value is too small for a float
};

// Marsaglia and Tsang, "A simple method for generating gamma variables" (ACM TOMS 26, 2000); for a
// shape below 1, G(shape) = G(shape + 1) U^(1 / shape).
inline Gamma next_gamma(thread Numbers& numbers, float shape) {
  Gamma drawn;
  drawn.value = drawn.log_value = NAN;
  if (!(shape > 0.0f && shape < INFINITY)) return drawn;
  const float d = (shape < 1.0f ? shape + 1.0f : shape) - 0.3333333333333333f;
  const float c = 0.3333333333333333f / sqrt(d);
  float t = 0.0f;
  for (int attempt = 0; attempt < 256; attempt++) {
    t = c * next_normal(numbers);
    if (!(t > -1.0f)) continue;
    // The paper's 0.5 x^2 + d - d v + d log v with v = (1 + t)^3, of which all up to t^3 cancels.
    if (-next_exponential(numbers) < 3.0f * d * log1p_less_cubic(t)) break;
  }
  const float part = shape < 1.0f ? next_exponential(numbers) / shape : 0.0f;
  drawn.log_value = log(d) + 3.0f * log1p(t) - part;
  drawn.value = d * (1.0f + t) * (1.0f + t) * (1.0f + t) * exp(-part);
  return drawn;
}

// The integrand of the derivative below, t on the side of ``side``.
inline float slope_part(float t, float shape, float excess, float offset) {
  return exp((shape - 1.0f) * log1p_less_x(t) - (excess + 1.0f) * t) * (offset + log1p(t));
}

// d log x / d shape of the gamma variable x that stays at its quantile (Figurnov, Mohamed and Mnih,
// "Implicit reparameterization gradients", NeurIPS 2018): -(dP / d shape) / (x dP / dx), P the
// distribution function.
//
// Left of shape + 1 by P's power series, whose terms are then of one sign but for a few:
//   sum_n r_n (digamma(shape + n + 1) - log x),  r_0 = 1 / shape,  r_n = r_{n-1} x / (shape + n).
// Elsewhere by Simpson's rule from
//   side * integral (1 + t)^(shape - 1) exp(-x t) (log(x (1 + t)) - digamma(shape)) dt
// over t from 0 to infinity (side 1), or for great shapes left of them from -1 to 0 (side -1).
inline float gamma_slope(float shape, float value, float log_value) {
  if (!(shape > 0.0f && shape < INFINITY) || log_value != log_value) return NAN;
  const bool great = shape > 100.0f;
  const float excess = value - shape;
  if (!great && excess <= 1.0f) {
    float term = 1.0f / shape, level = digamma(shape + 1.0f) - log_value, sum = 0.0f;
    for (int n = 1; n < 400; n++) {
      const float part = term * level;
      sum += part;
      if (value <= shape + float(n) && fabs(part) < 1e-8f * fabs(sum)) break;
      term *= value / (shape + float(n));
      level += 1.0f / (shape + float(n));
    }
    return sum;
  }
  const float side = excess >= 0.0f ? 1.0f : -1.0f;
  // log(shape) - digamma(shape), by its asymptotic series for great shapes.
  const float gap = great ? (0.5f + 0.08333333333333333f / shape) / shape
                          : log(shape) - digamma(shape);
  const float offset = log1p(excess / shape) + gap;
  // Beyond the end the integrand is below e^-20 of its start: t - log(1 + t) is at least
  // t^2 / (2 (1 + t)), and left of 0 at least t^2 / 2.
  const float bend = max(shape - 1.0f, 0.0f), fall = side * (excess + 1.0f);
  float end;
  if (side > 0.0f) {
    const float a = fall + 0.5f * bend, b = 20.0f - fall;
    end = (b + sqrt(b * b + 80.0f * a)) / (2.0f * a);
  } else {
    end = min((-fall + sqrt(fall * fall + 40.0f * bend)) / bend, 0.999f);
  }
  const float step = end / 128.0f;
  float sum = 0.0f;
  for (int i = 0; i <= 128; i++) {
    const float weight = i == 0 || i == 128 ? 1.0f : i % 2 == 1 ? 4.0f : 2.0f;
    sum += weight * slope_part(side * float(i) * step, shape, excess, offset);
  }
  return side * sum * step * 0.3333333333333333f;
}

}  // namespace torchyard
