// Angles.

namespace torchyard {

// A von Mises variable about 0, in [-pi, pi] (Best and Fisher, "Efficient simulation of the von Mises
// distribution", 1979). The paper's r and f are near 1 for a great concentration: r - 1, 1 - f and
// 1 + f are computed instead, of which nothing cancels.
inline float next_angle(thread Numbers& numbers, float concentration) {
  if (!(concentration >= 0.0f && concentration < INFINITY)) return NAN;
  const float kappa = max(concentration, 1e-6f), root = sqrt(1.0f + 4.0f * kappa * kappa);
  const float r_less_1 = (1.0f + 1.0f / (root + 2.0f * kappa)) / (2.0f * kappa);
  float low = 0.0f, high = 2.0f;
  for (int attempt = 0; attempt < 256; attempt++) {
    const float half_turn = 0.5f * next_uniform(numbers);
    const float sine = precise::sinpi(half_turn), cosine = precise::cospi(half_turn);
    // z = cos(pi u), so 1 - z = 2 sine^2 and 1 + z = 2 cosine^2.
    const float below = 2.0f * sine * sine, above = 2.0f * cosine * cosine;
    const float divisor = r_less_1 + above;
    low = r_less_1 * below / divisor;
    high = (r_less_1 + 2.0f) * above / divisor;
    const float c = kappa * (r_less_1 + low);
    const float v = next_uniform(numbers);
    if (c * (2.0f - c) > v || log(c / v) + 1.0f - c >= 0.0f) break;
  }
  const float angle = 2.0f * atan2(sqrt(low), sqrt(high));
  return (next_bits(numbers) & 1u) != 0u ? -angle : angle;
}

}  // namespace torchyard
