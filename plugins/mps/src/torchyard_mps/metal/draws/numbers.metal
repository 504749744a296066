// Random numbers by counters: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A number is a function of the key, of the element that it is
// drawn for, and of how many the element took before: not of the launch.

namespace torchyard {

inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; round++) {
    const uint high = mulhi(0xD2511F53u, counter.x), other_high = mulhi(0xCD9E8D57u, counter.z);
    counter = uint4(other_high ^ counter.y ^ key.x, 0xCD9E8D57u * counter.z,
                    high ^ counter.w ^ key.y, 0xD2511F53u * counter.x);
    key = uint2(key.x + 0x9E3779B9u, key.y + 0xBB67AE85u);
  }
  return counter;
}

// The numbers of one element.
struct Numbers {
  uint2 key;
  ulong element;
  uint taken;
  uint4 words;
};

inline Numbers numbers_of(uint2 key, ulong element) {
  Numbers numbers;
  numbers.key = key;
  numbers.element = element;
  numbers.taken = 0u;
  numbers.words = uint4(0u, 0u, 0u, 0u);
  return numbers;
}

inline uint next_bits(thread Numbers& numbers) {
  const uint place = numbers.taken % 4u;
  if (place == 0u) {
    const uint4 counter = uint4(uint(numbers.element), uint(numbers.element >> 32),
                                numbers.taken / 4u, 0u);
    numbers.words = philox(counter, numbers.key);
  }
  numbers.taken++;
  return place == 0u ? numbers.words.x
                     : place == 1u ? numbers.words.y
                                   : place == 2u ? numbers.words.z : numbers.words.w;
}

// Uniform in (0, 1), both ends left out: the middle of one of 2^23 parts.
inline float next_uniform(thread Numbers& numbers) {
  return (float(next_bits(numbers) >> 9) + 0.5f) * 1.1920928955078125e-7f;
}

// Exponential with mean 1, of 32 bits at both of its ends.
inline float next_exponential(thread Numbers& numbers) {
  const uint bits = next_bits(numbers);
  const float step = 2.3283064365386963e-10f;
  return bits < 0x80000000u ? -log((float(bits) + 0.5f) * step)
                            : -log1p(-(float(~bits) + 0.5f) * step);
}

// Normal, by Box and Muller's polar form.
inline float next_normal(thread Numbers& numbers) {
  const float radius = sqrt(2.0f * next_exponential(numbers));
  return radius * precise::cospi(2.0f * next_uniform(numbers));
}

// log(1 + x) - x, without cancellation near 0: 2 atanh(x / (2 + x)) as a series there.
inline float log1p_less_x(float x) {
  if (!(fabs(x) < 0.4f)) return log1p(x) - x;
  const float s = x / (2.0f + x), z = s * s;
  float series = 0.1111111111111111f + z * (0.09090909090909091f + z * 0.07692307692307693f);
  series = 0.3333333333333333f + z * (0.2f + z * (0.14285714285714285f + z * series));
  return 2.0f * s * z * series - x * s;
}

}  // namespace torchyard
