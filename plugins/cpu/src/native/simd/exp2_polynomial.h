// Polynomials for 2^f, f in [0, 1): minimax in relative error with the constant fixed to 1, so that
// 2^0 is exactly 1. Coefficients fitted in float64 and rounded to float32; the error stated is the
// rounded polynomial's, evaluated exactly.
#pragma once

namespace torchyard {
namespace {

// 2.9e-6: three hundred times below bfloat16's rounding, small enough for a log-sum-exp.
struct Exp2Degree4 {
  template <class Isa>
  static typename Isa::Vec evaluate(typename Isa::Vec f) {
    auto p = Isa::fma(Isa::set1(0x1.b7f81ep-7f), f, Isa::set1(0x1.abf80ap-5f));
    p = Isa::fma(p, f, Isa::set1(0x1.ee245cp-3f));
    p = Isa::fma(p, f, Isa::set1(0x1.62d6c6p-1f));
    return Isa::fma(p, f, Isa::set1(1.0f));
  }
};

// 9.1e-8: below float32's own spacing of 1.2e-7.
struct Exp2Degree5 {
  template <class Isa>
  static typename Isa::Vec evaluate(typename Isa::Vec f) {
    auto p = Isa::fma(Isa::set1(0x1.e975c2p-10f), f, Isa::set1(0x1.27782p-7f));
    p = Isa::fma(p, f, Isa::set1(0x1.c91cfp-5f));
    p = Isa::fma(p, f, Isa::set1(0x1.ebdb56p-3f));
    p = Isa::fma(p, f, Isa::set1(0x1.62e4bap-1f));
    return Isa::fma(p, f, Isa::set1(1.0f));
  }
};

}  // namespace
}  // namespace torchyard
