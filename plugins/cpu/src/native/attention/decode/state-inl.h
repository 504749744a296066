// What a split of the keys leaves behind, and how the states of all splits become a result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/decode/decode.h"
#include "attention/tile/tile-inl.h"
#include "simd/format.h"

namespace torchyard {
namespace {

// Sums over values [rows][columns], sums of weights [rows], references [rows], as DecodeJob::state;
// columns are the value's, up to a whole vector.
template <class Format>
struct DecodeState {
  using Isa = typename Format::Isa;
  using Element = typename Format::Element;
  using Vec = typename Format::Vec;

  static size_t floats(const ForwardArgs& args) {
    const size_t rows = static_cast<size_t>(rows_of(args));
    // Whole lines, so that threads that write neighbouring states do not share one.
    return (rows * (static_cast<size_t>(columns_of(args)) + 2) + 15) / 16 * 16;
  }

  static int64_t rows_of(const ForwardArgs& args) {
    return args.query_heads / args.key_heads * args.query_rows;
  }
  static int64_t columns_of(const ForwardArgs& args) {
    return (args.value_dim + Isa::kLanes - 1) / Isa::kLanes * Isa::kLanes;
  }

  static const float* state_weight(const float* state, int rows, int64_t columns) {
    return state + rows * columns;
  }
  static const float* state_reference(const float* state, int rows, int64_t columns) {
    return state + rows * (columns + 1);
  }
  static TORCHYARD_INLINE float first_lane(Vec v) {
    float lanes[Isa::kLanes];
    Isa::store(lanes, v);
    return lanes[0];
  }

  static void finish(const ForwardArgs& args, const DecodeJob& job, const float* states,
                     int64_t count) {
    const size_t stride = floats(args);
    // References of modified scores are in natural units.
    const float unit = args.score == nullptr ? 1.0f : static_cast<float>(kLog2E);
    const int64_t columns = columns_of(args);
    if (count == 1) {
      for (int r = 0; r < job.rows; ++r) {
        const float reference = state_reference(states, job.rows, columns)[r];
        write(args, job, r, states + r * columns, state_weight(states, job.rows, columns)[r],
              reference == kMinusInfinity ? 0.0f : reference, reference);
      }
      return;
    }
    for (int r = 0; r < job.rows; ++r) {
      float reference = kMinusInfinity;
      float nan = 0.0f;
      for (int64_t s = 0; s < count; ++s) {
        const float found = state_reference(states + s * stride, job.rows, columns)[r];
        reference = found > reference ? found : reference;
        nan = found != found ? found : nan;
      }
      const float base = reference == kMinusInfinity ? 0.0f : reference;
      float* sum = reinterpret_cast<float*>(job.scratch);
      for (int64_t j = 0; j < columns; j += Isa::kLanes) Isa::store(sum + j, Isa::zero());
      float weight = 0.0f;
      for (int64_t s = 0; s < count; ++s) {
        const float* state = states + s * stride;
        const float part = state_weight(state, job.rows, columns)[r];
        // Nothing was seen, or only scores of -inf: sums may hold 0 * inf.
        if (part == 0.0f) continue;
        const float own = state_reference(state, job.rows, columns)[r];
        const float factor =
            first_lane(Isa::template exp2<typename Format::Exp2>(Isa::set1((own - base) * unit)));
        weight += part * factor;
        const Vec scale = Isa::set1(factor);
        for (int64_t j = 0; j < columns; j += Isa::kLanes) {
          Isa::store(sum + j,
                     Isa::fma(Isa::load(state + r * columns + j), scale, Isa::load(sum + j)));
        }
      }
      write(args, job, r, sum, weight, base, nan != nan ? nan : reference);
    }
  }

  static void write(const ForwardArgs& args, const DecodeJob& job, int r, const float* sum,
                    float weight, float base, float greatest) {
    const int64_t group = args.query_heads / args.key_heads;
    const int64_t head = job.key_head * group + r / args.query_rows;
    const int64_t row = r % args.query_rows;
    Element* out = static_cast<Element*>(args.out.data) + job.batch * args.out.batch +
                   head * args.out.head + row * args.out.row;
    const bool empty = weight == 0.0f;
    const Vec inverse = Isa::set1(empty ? 0.0f : 1.0f / weight);
    for (int64_t j = 0; j < args.value_dim; j += Isa::kLanes) {
      const int64_t left = args.value_dim - j;
      const int n = static_cast<int>(left < Isa::kLanes ? left : Isa::kLanes);
      const Vec v = empty ? Isa::zero() : Isa::mul(Isa::load(sum + j), inverse);
      Isa::store_first(out + j, v, n);
    }
    const int64_t at = (job.batch * args.query_heads + head) * args.query_rows + row;
    const double unit = args.score == nullptr ? kLn2 : 1.0;
    if (args.max_scores != nullptr) args.max_scores[at] = static_cast<float>(greatest * unit);
    if (args.lse != nullptr) {
      args.lse[at] =
          empty ? kMinusInfinity : static_cast<float>(base * unit + __builtin_log(weight));
    }
  }
};

}  // namespace
}  // namespace torchyard
