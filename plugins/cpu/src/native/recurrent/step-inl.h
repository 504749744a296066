// One step: the recurrent product of a panel, and the gates while its sums are in the cache.
#pragma once

#include <cstdint>

#include "recurrent/product-inl.h"
#include "simd/exp2_polynomial.h"
#include "simd/functions.h"

namespace torchyard {
namespace {

template <class Format>
struct Step {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  using Operand = typename Format::Operand;
  using F = Functions<Isa>;
  static constexpr int kLanes = Isa::kLanes;

  // 1 / (1 + e^-x). e^-x in one step: its error is relative, and grows only where the result is
  // within 1e-7 of 0.
  static TORCHYARD_INLINE Vec sigmoid(Vec x) {
    const Vec one = Isa::set1(1.0f);
    const Vec e = Isa::template exp2<Exp2Degree5>(Isa::mul(x, Isa::set1(-0x1.715476p+0f)));
    return one / Isa::add(one, e);
  }

  // Where the results of one row and one vector of units go.
  struct Place {
    const RecurrentStepJob& job;
    int64_t row;
    int64_t unit;
    int count;  // units that exist
    bool ended;

    Vec inputs(int64_t column) const {
      return Isa::load(job.inputs + row * job.inputs_stride + column);
    }
    Vec before() const {
      return Format::load(static_cast<const Operand*>(job.state) + row * job.state_stride + unit);
    }
    void keep(int64_t column, Vec v) const {
      if (job.reserve == nullptr) return;
      Isa::store_first(job.reserve + row * job.reserve_stride + column + unit,
                       ended ? Isa::zero() : v, count);
    }
    // The new hidden state, which is the output too. `column` is where the reserve has it.
    void hidden(int64_t column, Vec v) const {
      const Vec h = rounded<Isa, Element>(v);
      Format::store(static_cast<Operand*>(job.after) + row * job.state_stride + unit,
                    ended ? before() : h);
      Isa::store_first(static_cast<Element*>(job.output) + row * job.output_stride + unit,
                       ended ? Isa::zero() : h, count);
      keep(column, h);
    }
  };

  struct Lstm {
    static constexpr int kVectors = 4;
    static constexpr int kGates = 4;
    static TORCHYARD_INLINE void apply(const Place& at, const Vec (&sum)[4], int64_t column) {
      const RecurrentStepJob& job = at.job;
      const Vec i = sigmoid(Isa::add(sum[0], at.inputs(column)));
      const Vec f = sigmoid(Isa::add(sum[1], at.inputs(column + kLanes)));
      const Vec g = F::tanh(Isa::add(sum[2], at.inputs(column + 2 * kLanes)));
      const Vec o = sigmoid(Isa::add(sum[3], at.inputs(column + 3 * kLanes)));
      float* cell = job.cell + at.row * job.cell_stride + at.unit;
      const Vec old = Isa::load(cell);
      const Vec c = Isa::fma(f, old, Isa::mul(i, g));
      Isa::store(cell, at.ended ? old : c);
      const Vec h = Isa::mul(o, F::tanh(c));
      at.keep(0, i);
      at.keep(job.hidden, f);
      at.keep(2 * job.hidden, g);
      at.keep(3 * job.hidden, o);
      at.keep(4 * job.hidden, c);
      if (job.unprojected == nullptr) {
        at.hidden(5 * job.hidden, h);
      } else {
        Format::store(
            static_cast<Operand*>(job.unprojected) + at.row * job.unprojected_stride + at.unit, h);
      }
    }
  };

  struct Gru {
    static constexpr int kVectors = 3;
    static constexpr int kGates = 3;
    static TORCHYARD_INLINE void apply(const Place& at, const Vec (&sum)[3], int64_t column) {
      const int64_t hidden = at.job.hidden;
      const Vec r = sigmoid(Isa::add(sum[0], at.inputs(column)));
      const Vec z = sigmoid(Isa::add(sum[1], at.inputs(column + kLanes)));
      const Vec n = F::tanh(Isa::fma(r, sum[2], at.inputs(column + 2 * kLanes)));
      at.keep(0, r);
      at.keep(hidden, z);
      at.keep(2 * hidden, n);
      at.keep(3 * hidden, sum[2]);
      at.hidden(4 * hidden, Isa::fma(z, Isa::sub(at.before(), n), n));
    }
  };

  template <bool kTanh>
  struct Plain {
    static constexpr int kVectors = 4;
    static constexpr int kGates = 1;
    static TORCHYARD_INLINE void apply(const Place& at, const Vec (&sum)[1], int64_t column) {
      const Vec x = Isa::add(sum[0], at.inputs(column));
      // A NaN is less than nothing, and so stays.
      at.hidden(0, kTanh ? F::tanh(x) : Lanes<Isa>::choose(x < Isa::zero(), Isa::zero(), x));
    }
  };

  // h = Wr (o tanh(c)).
  struct Projection {
    static constexpr int kVectors = 4;
    static constexpr int kGates = 1;
    static TORCHYARD_INLINE void apply(const Place& at, const Vec (&sum)[1], int64_t) {
      at.hidden(5 * at.job.hidden, sum[0]);
    }
  };

  // Asks for the inputs' sums of some columns, which lie in a farther cache, while those of the
  // state are taken.
  static TORCHYARD_INLINE void fetch_inputs(const RecurrentStepJob& job, int64_t first,
                                            int64_t count) {
    constexpr int64_t kLine = 64 / sizeof(float);
    if (job.projection) return;
    for (int64_t r = 0; r < job.batch; ++r) {
      const float* inputs = job.inputs + r * job.inputs_stride + first;
      for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(inputs + i);
    }
  }

  template <class Cell>
  static void all(const RecurrentStepJob& job) {
    using P = Product<Format>;
    constexpr int kVectors = Cell::kVectors;
    constexpr int kStride = kVectors * kLanes;
    const int64_t each = P::template block_rows<kVectors>(job.batch);
    alignas(64) float tile[P::template most_rows<kVectors>() * kStride];
    const int64_t panels = job.end_panel - job.first_panel;
    for (int64_t done = 0; done < panels;) {
      const int64_t together = job.batch == 1 && panels - done >= 2 ? 2 : 1;
      // Every second step begins with the panels that the one before ended with: those are in the
      // nearest cache.
      const int64_t p =
          job.step % 2 == 0 ? job.first_panel + done : job.end_panel - done - together;
      done += together;
      const std::byte* panel = job.panels + p * P::panel_bytes(job.words, kVectors);
      const float* bias = job.bias == nullptr ? nullptr : job.bias + p * kStride;
      fetch_inputs(job, p * kStride, together * kStride);
      for (int64_t r0 = 0; r0 < job.batch; r0 += each) {
        const int64_t count = job.batch - r0 < each ? job.batch - r0 : each;
        const Operand* rows = static_cast<const Operand*>(job.before) + r0 * job.before_stride;
        if (together == 2) {
          P::template two_panels<kVectors>(rows, panel, job.words, bias, tile);
        } else {
          P::template sums<kVectors>(count, rows, job.before_stride, panel, job.words, bias, tile,
                                     kStride);
        }
        for (int64_t i = 0; i < count * together; ++i) {
          apply<Cell>(job, r0 + (together == 2 ? 0 : i), p + (together == 2 ? i : 0),
                      tile + i * kStride);
        }
      }
    }
  }

  // The new state of one row and one panel's units, from their sums.
  template <class Cell>
  static TORCHYARD_INLINE void apply(const RecurrentStepJob& job, int64_t row, int64_t panel,
                                     const float* sums) {
    constexpr int kGates = Cell::kGates;
    constexpr int kUnits = Cell::kVectors / kGates;
    const bool ended = job.lengths != nullptr && job.step >= job.lengths[row];
    for (int u = 0; u < kUnits; ++u) {
      const int64_t unit = (panel * kUnits + u) * kLanes;
      if (unit >= job.units) break;
      const int64_t left = job.units - unit;
      const Place at = {job, row, unit, static_cast<int>(left < kLanes ? left : kLanes), ended};
      Vec sum[kGates];
#pragma GCC unroll 4
      for (int g = 0; g < kGates; ++g) sum[g] = Isa::load(sums + (u * kGates + g) * kLanes);
      Cell::apply(at, sum, panel * Cell::kVectors * kLanes + u * kLanes);
    }
  }

  static void run(const RecurrentStepJob& job) {
    if (job.projection) return all<Projection>(job);
    switch (job.kind) {
      case RecurrentKind::kLstm:
        return all<Lstm>(job);
      case RecurrentKind::kGru:
        return all<Gru>(job);
      case RecurrentKind::kTanh:
        return all<Plain<true>>(job);
      case RecurrentKind::kRelu:
        return all<Plain<false>>(job);
    }
  }
};

}  // namespace
}  // namespace torchyard
