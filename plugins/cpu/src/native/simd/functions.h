// Elementary functions of float lanes. Errors are relative to the exact value, for results that are
// normal floats; infinities and NaN are torch's. Polynomials are minimax in relative error, fitted
// in float64 and rounded to float32.
#pragma once

#include "simd/lanes.h"

namespace torchyard {
namespace {

template <class Isa>
struct Functions {
  using L = Lanes<Isa>;
  using Float = typename L::Float;
  using Int = typename L::Int;
#define TORCHYARD_LANES static inline __attribute__((always_inline))

  // 2^f - 1 for |f| <= 1/2, as f times a polynomial: 1.1e-8, also where f is small.
  TORCHYARD_LANES Float exp2_minus_1(Float f) {
    Float p = Isa::fma(Isa::set1(0x1.4308f4p-13f), f, Isa::set1(0x1.5f07b4p-10f));
    p = Isa::fma(p, f, Isa::set1(0x1.3b2bap-7f));
    p = Isa::fma(p, f, Isa::set1(0x1.c6af6ep-5f));
    p = Isa::fma(p, f, Isa::set1(0x1.ebfbdep-3f));
    return Isa::mul(f, Isa::fma(p, f, Isa::set1(0x1.62e43p-1f)));
  }

  // The nearest integer to |x| < 2^22, as a float and, times 2^23, as an integer.
  TORCHYARD_LANES Float nearest(Float x, Int* shifted) {
    const Float magic = Isa::set1(0x1.8p23f);
    const Float moved = x + magic;
    *shifted = (L::bits(moved) - L::bits(magic)) << 23;
    return moved - magic;
  }

  // value * 2^n, |n| <= 252; two factors, so that results overflow and underflow as they should.
  TORCHYARD_LANES Float scaled(Float value, Int shifted) {
    const Int n = shifted >> 23;
    const Int half = n >> 1;
    const Int one = L::bits(Isa::set1(1.0f));
    return value * L::floats(one + (half << 23)) * L::floats(one + ((n - half) << 23));
  }

  TORCHYARD_LANES Float clamped(Float x, float low, float high) {
    const Float below = L::choose(x > Isa::set1(low), x, Isa::set1(low));
    return L::choose(below < Isa::set1(high), below, Isa::set1(high));
  }

  // 2^x, 1.2e-7.
  TORCHYARD_LANES Float exp2(Float x) {
    const Float t = clamped(x, -160.0f, 130.0f);
    Int shifted;
    const Float n = nearest(t, &shifted);
    const Float result = scaled(exp2_minus_1(t - n) + Isa::set1(1.0f), shifted);
    return L::choose(x == x, result, x);
  }

  // e^x, 1.5e-7. x - n ln 2 is taken in two steps; the first is exact without a fused product.
  TORCHYARD_LANES Float exp(Float x) {
    const Float t = clamped(x, -110.0f, 90.0f);
    Int shifted;
    const Float n = nearest(t * Isa::set1(0x1.715476p+0f), &shifted);
    Float r = Isa::fma(n, Isa::set1(-0x1.62ep-1f), t);
    r = Isa::fma(n, Isa::set1(-0x1.0bfbe8p-15f), r);
    const Float result =
        scaled(exp2_minus_1(r * Isa::set1(0x1.715476p+0f)) + Isa::set1(1.0f), shifted);
    return L::choose(x == x, result, x);
  }

  // tanh x = (e^2x - 1) / (e^2x + 1), with e^2x - 1 taken whole: 3e-7, small x included.
  TORCHYARD_LANES Float tanh(Float x) {
    const Int sign = L::bits(x) & L::bits(Isa::set1(-0.0f));
    const Float magnitude = L::floats(L::bits(x) ^ sign);
    // From here on the result is 1; NaN comes in too, and is put back.
    const Float limit = Isa::set1(10.0f);
    const Float a = L::choose(magnitude < limit, magnitude, limit);
    const Float t = a * Isa::set1(0x1.715476p+1f);
    Int shifted;
    const Float n = nearest(t, &shifted);
    const Float whole = L::floats(L::bits(Isa::set1(1.0f)) + shifted);
    const Float m = Isa::fma(exp2_minus_1(t - n), whole, whole - Isa::set1(1.0f));
    const Float result = L::floats(L::bits(m / (m + Isa::set1(2.0f))) | sign);
    return L::choose(x == x, result, x);
  }

  // 1 / (1 + e^-x), 3e-7.
  TORCHYARD_LANES Float sigmoid(Float x) {
    return Isa::set1(1.0f) / (Isa::set1(1.0f) + exp(Isa::zero() - x));
  }

  // The error function, 3.5e-7: x times a quotient of polynomials of x^2 (1.8e-8), at 3.9 and
  // beyond
  // 1. Without a choice between formulas, and without e^x, it takes half the time.
  TORCHYARD_LANES Float erf(Float x) {
    // In this order NaN stays.
    const Float limit = Isa::set1(3.9f);
    const Float least = Isa::zero() - limit;
    Float held = L::choose(x > limit, limit, x);
    held = L::choose(held < least, least, held);
    const Float s = held * held;
    Float p = Isa::fma(Isa::set1(0x1.155bf4p-19f), s, Isa::set1(0x1.2ae8cap-12f));
    Float q = Isa::fma(Isa::set1(0x1.41088cp-15f), s, Isa::set1(0x1.2f65ccp-10f));
    p = Isa::fma(p, s, Isa::set1(0x1.e9fd12p-9f));
    q = Isa::fma(q, s, Isa::set1(0x1.e8b582p-7f));
    p = Isa::fma(p, s, Isa::set1(0x1.af74c8p-5f));
    q = Isa::fma(q, s, Isa::set1(0x1.d2338p-4f));
    p = Isa::fma(p, s, Isa::set1(0x1.846fap-3f));
    q = Isa::fma(q, s, Isa::set1(0x1.00ba1cp-1f));
    p = Isa::fma(p, s, Isa::set1(0x1.20dd74p+0f));
    const Float one = Isa::set1(1.0f);
    const Float result = held * p / Isa::fma(q, s, one);
    const Float below = L::choose(result > one, one, result);
    return L::choose(below < Isa::zero() - one, Isa::zero() - one, below);
  }

  // x = 2^exponent * (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1]; `tail` is ln(1 + f) - f. For
  // finite x > 0.
  TORCHYARD_LANES void split(Float x, Float* exponent, Float* f, Float* tail) {
    const Int tiny = x < Isa::set1(0x1p-126f);
    const Float normal = L::choose(tiny, x * Isa::set1(0x1p25f), x);
    // Moves sqrt(1/2) to where the exponent steps.
    const Int moved = L::bits(normal) - L::bits(Isa::set1(0x1.6a09e6p-1f));
    const Int whole = moved >> 23;
    const Int none = whole ^ whole;
    *exponent = __builtin_convertvector(whole - (tiny & (none + 25)), Float);
    *f = L::floats(L::bits(normal) - (whole << 23)) - Isa::set1(1.0f);
    Float p = Isa::fma(Isa::set1(-0x1.3e9596p-4f), *f, Isa::set1(0x1.05adc4p-3f));
    p = Isa::fma(p, *f, Isa::set1(-0x1.0c9366p-3f));
    p = Isa::fma(p, *f, Isa::set1(0x1.22bcbcp-3f));
    p = Isa::fma(p, *f, Isa::set1(-0x1.5485dap-3f));
    p = Isa::fma(p, *f, Isa::set1(0x1.99a22ep-3f));
    p = Isa::fma(p, *f, Isa::set1(-0x1.00020ap-2f));
    p = Isa::fma(p, *f, Isa::set1(0x1.55555p-2f));
    p = Isa::fma(p, *f, Isa::set1(-0x1.fffffep-2f));
    *tail = *f * *f * p;
  }

  // What a logarithm gives for x that is not finite or not positive, else `result`.
  TORCHYARD_LANES Float logarithm_of(Float x, Float result) {
    const Float infinity = Isa::set1(__builtin_inff());
    result = L::choose(x == infinity, infinity, result);
    result = L::choose(x == Isa::zero(), Isa::zero() - infinity, result);
    return L::choose(x >= Isa::zero(), result, Isa::set1(__builtin_nanf("")));
  }

  // ln x, 2e-7.
  TORCHYARD_LANES Float log(Float x) {
    Float exponent, f, tail;
    split(x, &exponent, &f, &tail);
    const Float low = Isa::fma(exponent, Isa::set1(0x1.0bfbe8p-15f), tail);
    return logarithm_of(x, Isa::fma(exponent, Isa::set1(0x1.62ep-1f), f + low));
  }

  // log2 x, 3e-7; exact for powers of 2.
  TORCHYARD_LANES Float log2(Float x) {
    Float exponent, f, tail;
    split(x, &exponent, &f, &tail);
    return logarithm_of(x, Isa::fma(f + tail, Isa::set1(0x1.715476p+0f), exponent));
  }
#undef TORCHYARD_LANES
};

}  // namespace
}  // namespace torchyard
