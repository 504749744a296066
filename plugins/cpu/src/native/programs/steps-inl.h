// The operations of a program over lanes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "programs/step.h"
#include "simd/element.h"
#include "simd/functions.h"

namespace torchyard {
namespace {

// Where an operand's vectors lie. A row's or a head's value is stored as one vector of equal lanes,
// that every step reads again.
struct ValueSource {
  const char* at;
  int64_t step;  // 1, or 0: the same vector each time
};

template <class Isa>
struct ProgramSteps {
  using L = Lanes<Isa>;
  using Fn = Functions<Isa>;
  using Float = typename L::Float;
  using Int = typename L::Int;
  using Bits = typename L::Bits;
  using Long = typename L::Long;
  using LongBits = typename L::LongBits;
  typedef double Double __attribute__((vector_size(8 * L::kCount)));
  typedef int16_t Short __attribute__((vector_size(2 * L::kCount)));

  template <class V>
  static inline __attribute__((always_inline)) V get(ValueSource s, int64_t i) {
    return L::template load<V>(s.at + i * s.step * static_cast<int64_t>(sizeof(V)));
  }

  template <class A, class O, class F>
  static inline __attribute__((always_inline)) void map(char* out, int64_t n, ValueSource a, F f) {
#pragma GCC unroll 2
    for (int64_t i = 0; i < n; ++i) {
      L::template store<O>(out + i * static_cast<int64_t>(sizeof(O)), f(get<A>(a, i)));
    }
  }
  template <class A, class O, class F>
  static inline __attribute__((always_inline)) void map(char* out, int64_t n, ValueSource a,
                                                        ValueSource b, F f) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; ++i) {
      L::template store<O>(out + i * static_cast<int64_t>(sizeof(O)),
                           f(get<A>(a, i), get<A>(b, i)));
    }
  }

  template <class A, class O, class F>
  static inline __attribute__((always_inline)) void map(char* out, int64_t n, ValueSource a,
                                                        ValueSource b, ValueSource c, F f) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; ++i) {
      L::template store<O>(out + i * static_cast<int64_t>(sizeof(O)),
                           f(get<A>(a, i), get<A>(b, i), get<A>(c, i)));
    }
  }

  static inline Float nan_of(Float a, Float result) { return L::choose(a == a, result, a); }
  static inline Long wide(Int v) { return __builtin_convertvector(v, Long); }
  static inline Int narrow(Long v) { return __builtin_convertvector(v, Int); }
  static inline Int choose(Int truth, Int yes, Int no) { return (yes & truth) | (no & ~truth); }
  static inline Long choose(Long truth, Long yes, Long no) { return (yes & truth) | (no & ~truth); }

  static inline Float floor(Float x) {
    const Float limit = Isa::set1(0x1p23f);
    const Int small = (x < limit) & (x > Isa::zero() - limit);
    const Float held = L::choose(small, x, Isa::zero());
    const Float whole = __builtin_convertvector(__builtin_convertvector(held, Int), Float);
    const Int above = whole > held;
    return L::choose(small, whole - L::choose(above, Isa::set1(1.0f), Isa::zero()), x);
  }

  // Truth is -1, and comparisons with NaN are false.
  static inline Float sign(Float x) {
    const Int below = x < Isa::zero();
    const Int above = x > Isa::zero();
    return __builtin_convertvector(below - above, Float);
  }

  // In float64 the quotient of an int32 that does not divide is never rounded to a whole number.
  static inline Int floor_divide(Int a, double divisor) {
    const Double exact = __builtin_convertvector(a, Double) / divisor;
    const Int whole = __builtin_convertvector(exact, Int);
    const Long above = __builtin_convertvector(whole, Double) > exact;
    return whole + narrow(above);
  }
  static inline Long floor_divide(Long a, int64_t divisor) {
    Long result = a;
    for (int i = 0; i < L::kCount; ++i) {
      const int64_t quotient = a[i] / divisor;
      result[i] = quotient - (a[i] % divisor != 0 && (a[i] < 0) != (divisor < 0));
    }
    return result;
  }

  static inline Long long_of(Float x) {
    const Float limit = Isa::set1(0x1p63f);
    const Int fits = (x < limit) & (x >= Isa::zero() - limit);
    const Long whole = __builtin_convertvector(L::choose(fits, x, Isa::zero()), Long);
    const Long none = whole ^ whole;
    return choose(wide(fits), whole, none + INT64_MIN);
  }

  template <class T>
  static inline Float rounded(Float x) {
    T narrow[L::kCount];
    Isa::store_first(narrow, x, L::kCount);
    return Isa::load_first(narrow, L::kCount);
  }

  // What a truth value or an integer of the tensor becomes in lanes.
  struct ElementFloat32 {
    using Stored = float;
    using Lane = float;
    static Lane lane(Stored x) { return x; }
  };
  struct ElementBfloat16 {
    using Stored = uint16_t;
    using Lane = uint32_t;
    static Lane lane(Stored x) { return static_cast<uint32_t>(x) << 16; }
  };
  struct ElementFloat16 {
    using Stored = F16;
    using Lane = float;
    static Lane lane(Stored x) { return Isa::load_first(&x, 1)[0]; }
  };
  template <class T, class LaneT>
  struct ElementInteger {
    using Stored = T;
    using Lane = LaneT;
    static Lane lane(Stored x) { return x; }
  };
  struct ElementNarrow {
    using Stored = int64_t;
    using Lane = int32_t;
    static Lane lane(Stored x) { return static_cast<Lane>(x); }
  };
  struct ElementBool {
    using Stored = uint8_t;
    using Lane = int32_t;
    static Lane lane(Stored x) { return x == 0 ? 0 : -1; }
  };

  template <class E, class Offset>
  static inline void gather_by(char* out, int64_t n, ValueSource a, const void* data) {
    const auto* from = static_cast<const typename E::Stored*>(data);
    const auto* offset = reinterpret_cast<const Offset*>(a.at);
    auto* to = reinterpret_cast<typename E::Lane*>(out);
    const int64_t count = n * L::kCount;
    // A row's offset is in all lanes; where it is asked for per key it is read again each time.
    if (a.step == 0) {
      const typename E::Lane same = E::lane(from[offset[0]]);
      for (int64_t i = 0; i < count; ++i) to[i] = same;
      return;
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < count; ++i) to[i] = E::lane(from[offset[i]]);
  }
  template <class E>
  static __attribute__((noinline)) void gather(char* out, int64_t n, ValueSource a,
                                               const ProgramStep& step) {
    const void* data = reinterpret_cast<const void*>(static_cast<intptr_t>(step.data));
    if (step.extra != 0) {
      gather_by<E, int64_t>(out, n, a, data);
    } else {
      gather_by<E, int32_t>(out, n, a, data);
    }
  }

  // `count` neighbouring elements; what follows them, up to a whole vector, may be written too.
  template <class E>
  static inline void consecutive(typename E::Lane* to, const typename E::Stored* from,
                                 int64_t count) {
    if constexpr (std::is_same_v<typename E::Stored, F16>) {
      for (int64_t i = 0; i < count; i += Isa::kLanes) {
        const int64_t left = count - i;
        const int n = static_cast<int>(left < Isa::kLanes ? left : Isa::kLanes);
        Isa::store(to + i, Isa::load_first(from + i, n));
      }
    } else {
#pragma GCC unroll 1
      for (int64_t i = 0; i < count; ++i) to[i] = E::lane(from[i]);
    }
  }

  // `count` elements from `offset` on, `stride` apart, and zeros up to `lanes`.
  template <class E>
  static __attribute__((noinline)) void load(char* out, const ProgramStep& step, int64_t offset,
                                             int64_t count, int64_t lanes) {
    const int64_t stride = step.extra;
    const auto* from =
        reinterpret_cast<const typename E::Stored*>(static_cast<intptr_t>(step.data)) + offset;
    auto* to = reinterpret_cast<typename E::Lane*>(out);
    if (stride == 1) {
      consecutive<E>(to, from, count);
    } else if (stride == -1) {
      for (int64_t i = 0; i < count; ++i) to[i] = E::lane(from[-i]);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = E::lane(from[i * stride]);
    }
    for (int64_t i = count; i < lanes; ++i) to[i] = 0;
  }

#define TORCHYARD_UNARY(op, A, O, expression) \
  case ProgramOp::op:                         \
    return map<A, O>(out, n, a,               \
                     [&](A x) __attribute__((always_inline)) -> O { return expression; });
#define TORCHYARD_BINARY(op, A, O, expression) \
  case ProgramOp::op:                          \
    return map<A, O>(out, n, a, b,             \
                     [&](A x, A y) __attribute__((always_inline)) -> O { return expression; });
#define TORCHYARD_TERNARY(op, expression)                   \
  case ProgramOp::op##_f:                                   \
    return map<Float, Float>(out, n, a, b, c,               \
                             [&](Float x, Float y, Float z) \
                                 __attribute__((always_inline)) -> Float { return expression; });
#define TORCHYARD_PAIRS(op, first)          \
  TORCHYARD_TERNARY(op##_sub, (first) - z)  \
  TORCHYARD_TERNARY(op##_mul, (first) * z)  \
  TORCHYARD_TERNARY(op##_div, (first) / z)  \
  TORCHYARD_TERNARY(op##_rsub, z - (first)) \
  TORCHYARD_TERNARY(op##_rdiv, z / (first))
#define TORCHYARD_GATHER(name, ...) \
  case ProgramOp::gather_##name:    \
    return gather<__VA_ARGS__>(out, n, a, step);

  // Everything but inputs, constants, indices and loads: `n` vectors.
  static __attribute__((noinline)) void run(const ProgramStep& step, char* out, int64_t n,
                                            ValueSource a, ValueSource b, ValueSource c) {
    switch (step.op) {
      TORCHYARD_BINARY(add_f, Float, Float, x + y)
      TORCHYARD_BINARY(sub_f, Float, Float, x - y)
      TORCHYARD_BINARY(mul_f, Float, Float, x * y)
      TORCHYARD_BINARY(div_f, Float, Float, x / y)
      TORCHYARD_BINARY(min_f, Float, Float, nan_of(x, L::choose(x < y, x, y)))
      TORCHYARD_BINARY(max_f, Float, Float, nan_of(x, L::choose(x > y, x, y)))
      TORCHYARD_BINARY(lt_f, Float, Int, x < y)
      TORCHYARD_BINARY(le_f, Float, Int, x <= y)
      TORCHYARD_BINARY(eq_f, Float, Int, x == y)
      TORCHYARD_BINARY(ne_f, Float, Int, x != y)
      case ProgramOp::where_f:
      case ProgramOp::where_i:
        for (int64_t i = 0; i < n; ++i) {
          const Int chosen = choose(get<Int>(a, i), get<Int>(b, i), get<Int>(c, i));
          L::store(out + i * static_cast<int64_t>(sizeof(Int)), chosen);
        }
        return;
      case ProgramOp::where_l:
        for (int64_t i = 0; i < n; ++i) {
          const Long chosen = choose(wide(get<Int>(a, i)), get<Long>(b, i), get<Long>(c, i));
          L::store(out + i * static_cast<int64_t>(sizeof(Long)), chosen);
        }
        return;
      case ProgramOp::mul_add_f:
        for (int64_t i = 0; i < n; ++i) {
          const Float sum = Isa::fma(get<Float>(a, i), get<Float>(b, i), get<Float>(c, i));
          L::store(out + i * static_cast<int64_t>(sizeof(Float)), sum);
        }
        return;
        TORCHYARD_UNARY(neg_f, Float, Float, -x)
        TORCHYARD_UNARY(abs_f, Float, Float, L::floats(L::bits(x) & 0x7fffffff))
        TORCHYARD_UNARY(sqrt_f, Float, Float, Isa::sqrt(x))
        TORCHYARD_UNARY(rsqrt_f, Float, Float, Isa::rsqrt(x))
        TORCHYARD_UNARY(floor_f, Float, Float, floor(x))
        TORCHYARD_UNARY(sign_f, Float, Float, sign(x))
        TORCHYARD_UNARY(exp_f, Float, Float, Fn::exp(x))
        TORCHYARD_UNARY(exp2_f, Float, Float, Fn::exp2(x))
        TORCHYARD_UNARY(log_f, Float, Float, Fn::log(x))
        TORCHYARD_UNARY(log2_f, Float, Float, Fn::log2(x))
        TORCHYARD_UNARY(tanh_f, Float, Float, Fn::tanh(x))
        TORCHYARD_UNARY(sigmoid_f, Float, Float, Fn::sigmoid(x))
        TORCHYARD_UNARY(erf_f, Float, Float, Fn::erf(x))
        TORCHYARD_BINARY(add_i, Bits, Bits, x + y)
        TORCHYARD_BINARY(sub_i, Bits, Bits, x - y)
        TORCHYARD_BINARY(mul_i, Bits, Bits, x * y)
        TORCHYARD_BINARY(min_i, Int, Int, choose(x < y, x, y))
        TORCHYARD_BINARY(max_i, Int, Int, choose(x > y, x, y))
        TORCHYARD_BINARY(lt_i, Int, Int, x < y)
        TORCHYARD_BINARY(le_i, Int, Int, x <= y)
        TORCHYARD_BINARY(eq_i, Int, Int, x == y)
        TORCHYARD_BINARY(ne_i, Int, Int, x != y)
        TORCHYARD_BINARY(and_i, Int, Int, x & y)
        TORCHYARD_BINARY(or_i, Int, Int, x | y)
        TORCHYARD_BINARY(xor_i, Int, Int, x ^ y)
        TORCHYARD_UNARY(floor_divide_i, Int, Int, floor_divide(x, static_cast<double>(step.extra)))
        TORCHYARD_UNARY(shift_right_i, Int, Int, x >> static_cast<int>(step.extra))
        TORCHYARD_BINARY(add_l, LongBits, LongBits, x + y)
        TORCHYARD_BINARY(sub_l, LongBits, LongBits, x - y)
        TORCHYARD_BINARY(mul_l, LongBits, LongBits, x * y)
        TORCHYARD_BINARY(min_l, Long, Long, choose(x < y, x, y))
        TORCHYARD_BINARY(max_l, Long, Long, choose(x > y, x, y))
        TORCHYARD_BINARY(lt_l, Long, Int, narrow(x < y))
        TORCHYARD_BINARY(le_l, Long, Int, narrow(x <= y))
        TORCHYARD_BINARY(eq_l, Long, Int, narrow(x == y))
        TORCHYARD_BINARY(ne_l, Long, Int, narrow(x != y))
        TORCHYARD_BINARY(and_l, Long, Long, x & y)
        TORCHYARD_BINARY(or_l, Long, Long, x | y)
        TORCHYARD_BINARY(xor_l, Long, Long, x ^ y)
        TORCHYARD_UNARY(floor_divide_l, Long, Long, floor_divide(x, step.extra))
        TORCHYARD_UNARY(shift_right_l, Long, Long, x >> step.extra)
        TORCHYARD_UNARY(float_of_i, Int, Float, __builtin_convertvector(x, Float))
        TORCHYARD_UNARY(float_of_l, Long, Float, __builtin_convertvector(x, Float))
        TORCHYARD_UNARY(long_of_f, Float, Long, long_of(x))
        TORCHYARD_UNARY(long_of_i, Int, Long, wide(x))
        TORCHYARD_UNARY(int_of_l, Long, Int, narrow(x))
        TORCHYARD_PAIRS(add, x + y)
        TORCHYARD_PAIRS(sub, x - y)
        TORCHYARD_PAIRS(mul, x * y)
        TORCHYARD_PAIRS(div, x / y)
        TORCHYARD_TERNARY(add_add, (x + y) + z)
        TORCHYARD_TERNARY(sub_add, (x - y) + z)
        TORCHYARD_TERNARY(div_add, x / y + z)
        TORCHYARD_TERNARY(lerp, Isa::fma(x - y, z, y))
        TORCHYARD_TERNARY(sqrt_mul_add, Isa::fma(Isa::sqrt(x), y, z))
        TORCHYARD_UNARY(round_bfloat16_f, Float, Float, rounded<Bf16>(x))
        TORCHYARD_UNARY(round_float16_f, Float, Float, rounded<F16>(x))
        TORCHYARD_GATHER(float32, ElementFloat32)
        TORCHYARD_GATHER(bfloat16, ElementBfloat16)
        TORCHYARD_GATHER(float16, ElementFloat16)
        TORCHYARD_GATHER(int64, ElementInteger<int64_t, int64_t>)
        TORCHYARD_GATHER(narrow, ElementNarrow)
        TORCHYARD_GATHER(int32, ElementInteger<int32_t, int32_t>)
        TORCHYARD_GATHER(int16, ElementInteger<int16_t, int32_t>)
        TORCHYARD_GATHER(int8, ElementInteger<int8_t, int32_t>)
        TORCHYARD_GATHER(uint8, ElementInteger<uint8_t, int32_t>)
        TORCHYARD_GATHER(bool, ElementBool)
      default:
        return;
    }
  }
#undef TORCHYARD_UNARY
#undef TORCHYARD_BINARY
#undef TORCHYARD_TERNARY
#undef TORCHYARD_PAIRS
#undef TORCHYARD_GATHER

  static int64_t stored_bytes(ProgramOp op) {
    switch (op) {
      case ProgramOp::load_int64:
      case ProgramOp::load_narrow:
        return 8;
      case ProgramOp::load_float32:
      case ProgramOp::load_int32:
        return 4;
      case ProgramOp::load_bfloat16:
      case ProgramOp::load_float16:
      case ProgramOp::load_int16:
        return 2;
      default:
        return 1;
    }
  }

  // Loads the elements of panels in a row; see `load`.
  static void load_panels(const ProgramStep& step, char* out, int64_t offset, int64_t count,
                          int64_t lanes) {
    switch (step.op) {
      case ProgramOp::load_float32:
        return load<ElementFloat32>(out, step, offset, count, lanes);
      case ProgramOp::load_bfloat16:
        return load<ElementBfloat16>(out, step, offset, count, lanes);
      case ProgramOp::load_float16:
        return load<ElementFloat16>(out, step, offset, count, lanes);
      case ProgramOp::load_int64:
        return load<ElementInteger<int64_t, int64_t>>(out, step, offset, count, lanes);
      case ProgramOp::load_narrow:
        return load<ElementNarrow>(out, step, offset, count, lanes);
      case ProgramOp::load_int32:
        return load<ElementInteger<int32_t, int32_t>>(out, step, offset, count, lanes);
      case ProgramOp::load_int16:
        return load<ElementInteger<int16_t, int32_t>>(out, step, offset, count, lanes);
      case ProgramOp::load_int8:
        return load<ElementInteger<int8_t, int32_t>>(out, step, offset, count, lanes);
      case ProgramOp::load_uint8:
        return load<ElementInteger<uint8_t, int32_t>>(out, step, offset, count, lanes);
      case ProgramOp::load_bool:
        return load<ElementBool>(out, step, offset, count, lanes);
      default:
        return;
    }
  }
};

}  // namespace
}  // namespace torchyard
