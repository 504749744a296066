// Counts: Poisson and binomial variables.

namespace torchyard {

// log n! - (n + 1/2) log n + n - log(2 pi) / 2 for n >= 1 (Loader, "Fast and accurate computation of
// binomial probabilities", 2000).
inline float stirling_error(float n) {
  if (n < 1.5f) return 0.08106146679532726f;
  if (n < 2.5f) return 0.04134069595540929f;
  if (n < 3.5f) return 0.027677925684998337f;
  const float z = 1.0f / (n * n);
  return (0.08333333333333333f - z * (0.002777777777777778f - z * 7.936507936507937e-4f)) / n;
}

// k log(k / mean) + mean - k, Loader's deviance.
inline float deviance(float k, float mean) {
  const float e = (k - mean) / mean;
  return mean * ((1.0f + e) * log1p_less_x(e) + e * e);
}

inline float log_poisson(float k, float rate) {
  if (k == 0.0f) return -rate;
  return -stirling_error(k) - deviance(k, rate) - 0.5f * log(6.283185307179586f * k);
}

// Below 10 by waiting times; from there by PTRS (Hörmann, "The transformed rejection method for
// generating Poisson random variables", 1993), the acceptance by Loader's expansion, which floats hold.
inline float next_poisson(thread Numbers& numbers, float rate) {
  if (!(rate >= 0.0f && rate < INFINITY)) return NAN;
  if (rate < 10.0f) {
    float count = 0.0f, waited = next_exponential(numbers);
    while (waited < rate) {
      waited += next_exponential(numbers);
      count += 1.0f;
    }
    return count;
  }
  const float root = sqrt(rate), b = 0.931f + 2.53f * root, a = -0.059f + 0.02483f * b;
  const float inverse_alpha = 1.1239f + 1.1328f / (b - 3.4f), most = 0.9277f - 3.6224f / (b - 2.0f);
  float k = floor(rate);
  for (int attempt = 0; attempt < 256; attempt++) {
    const float u = next_uniform(numbers) - 0.5f, v = next_uniform(numbers);
    const float left = 0.5f - fabs(u);
    k = floor((2.0f * a / left + b) * u + rate + 0.43f);
    if (left >= 0.07f && v <= most) break;
    if (k < 0.0f || (left < 0.013f && v > left)) continue;
    if (log(v * inverse_alpha / (a / (left * left) + b)) <= log_poisson(k, rate)) break;
  }
  return k;
}

// log of C(n, k) p^k (1 - p)^(n - k), for 0 <= k <= n and 0 < p < 1.
inline float log_binomial(float k, float n, float p) {
  if (k == 0.0f) return n * log1p(-p);
  if (k == n) return n * log(p);
  return stirling_error(n) - stirling_error(k) - stirling_error(n - k) - deviance(k, n * p) -
         deviance(n - k, n * (1.0f - p)) - 0.5f * log(6.283185307179586f * k * ((n - k) / n));
}

// Below a mean of 10 by waiting times of successes; from there by BTRS (Hörmann, "The generation of
// binomial random variates", 1993). ``p`` is at most one half.
inline float next_rare_binomial(thread Numbers& numbers, float n, float p) {
  if (n * p < 10.0f) {
    const float scale = -1.0f / log1p(-p);
    float count = 0.0f, trials = floor(next_exponential(numbers) * scale) + 1.0f;
    while (trials <= n) {
      trials += floor(next_exponential(numbers) * scale) + 1.0f;
      count += 1.0f;
    }
    return count;
  }
  const float root = sqrt(n * p * (1.0f - p)), b = 1.15f + 2.53f * root;
  const float a = -0.0873f + 0.0248f * b + 0.01f * p, centre = n * p + 0.5f;
  const float most = 0.92f - 4.2f / b, alpha = (2.83f + 5.1f / b) * root;
  const float mode = floor((n + 1.0f) * p), top = log_binomial(mode, n, p);
  float k = mode;
  for (int attempt = 0; attempt < 256; attempt++) {
    const float u = next_uniform(numbers) - 0.5f, v = next_uniform(numbers);
    const float left = 0.5f - fabs(u);
    k = floor((2.0f * a / left + b) * u + centre);
    if (left >= 0.07f && v <= most) break;
    if (k < 0.0f || k > n) continue;
    if (log(v * alpha / (a / (left * left) + b)) <= log_binomial(k, n, p) - top) break;
  }
  return k;
}

inline float next_binomial(thread Numbers& numbers, float n, float p) {
  if (!(n >= 0.0f && n < INFINITY && p >= 0.0f && p <= 1.0f)) return NAN;
  if (n == 0.0f || p == 0.0f) return 0.0f;
  if (p == 1.0f) return n;
  return p <= 0.5f ? next_rare_binomial(numbers, n, p) : n - next_rare_binomial(numbers, n, 1.0f - p);
}

}  // namespace torchyard
