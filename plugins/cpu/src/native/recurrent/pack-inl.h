// Weights into panels, and rows between elements, operands and floats.
#pragma once

#include <cstdint>

#include "recurrent/product-inl.h"
#include "recurrent/recurrent.h"
#include "recurrent/words.h"

namespace torchyard {
namespace {

template <class Format>
struct RecurrentPacker {
  using Isa = typename Format::Isa;
  using Vec = typename Isa::Vec;
  using Element = typename Format::Element;
  using Operand = typename Format::Operand;
  static constexpr int kLanes = Isa::kLanes;

  // panel(p, v / group, w, v % group, lane) is word w of the row of gate v % gates and unit
  // (p * vectors / gates + v / gates) * kLanes + lane; 0 where there is no such unit.
  static void run(const RecurrentPackJob& job) {
    const int64_t words = (job.columns + Format::kPair - 1) / Format::kPair;
    const int64_t group = Product<Format>::grouped(static_cast<int>(job.vectors));
    const int64_t units_per_panel = job.vectors / job.gates * kLanes;
    std::byte* out =
        job.panels + job.first_panel * words * job.vectors * kLanes * Format::kLaneBytes;
    for (int64_t p = job.first_panel; p < job.end_panel; ++p) {
      for (int64_t v = 0; v < job.vectors; ++v) {
        const int64_t unit = p * units_per_panel + v / job.gates * kLanes;
        std::byte* column_out =
            out + (v / group * words * group + v % group) * kLanes * Format::kLaneBytes;
        const Element* first = static_cast<const Element*>(job.weight) +
                               (v % job.gates * job.units + unit) * job.columns;
        for (int64_t w = 0; w < words; w += kLanes) {
          Vec row[kLanes];
          const int64_t column = w * Format::kPair;
          const int64_t left = job.columns - column;
          const int present =
              static_cast<int>(left < kLanes * Format::kPair ? left : kLanes * Format::kPair);
          for (int r = 0; r < kLanes; ++r) {
            row[r] = unit + r < job.units ? Format::words(first + r * job.columns + column, present)
                                          : Isa::zero();
          }
          Isa::transpose(row);
          for (int r = 0; r < kLanes && w + r < words; ++r) {
            Format::store_weights(column_out + (w + r) * group * kLanes * Format::kLaneBytes,
                                  row[r]);
          }
        }
      }
      out += words * job.vectors * kLanes * Format::kLaneBytes;
    }
  }

  static int first(int64_t left) { return static_cast<int>(left < kLanes ? left : kLanes); }

  static void to_operands(const void* elements, void* operands, int64_t count, int64_t padded) {
    const Element* in = static_cast<const Element*>(elements);
    Operand* out = static_cast<Operand*>(operands);
    for (int64_t i = 0; i < count; i += kLanes) {
      const int n = first(count - i);
      Isa::store_first(out + i, Isa::load_first(in + i, n), n);
    }
    for (int64_t i = count; i < padded; ++i) out[i] = Operand{};
  }

  static void from_operands(const void* operands, void* elements, int64_t count) {
    const Operand* in = static_cast<const Operand*>(operands);
    Element* out = static_cast<Element*>(elements);
    for (int64_t i = 0; i < count; i += kLanes) {
      const int n = first(count - i);
      Isa::store_first(out + i, Isa::load_first(in + i, n), n);
    }
  }

  static void widen(const void* elements, float* floats, int64_t count) {
    const Element* in = static_cast<const Element*>(elements);
    for (int64_t i = 0; i < count; i += kLanes) {
      const int n = first(count - i);
      Isa::store_first(floats + i, Isa::load_first(in + i, n), n);
    }
  }

  static void narrow(const float* floats, void* elements, int64_t count) {
    Element* out = static_cast<Element*>(elements);
    for (int64_t i = 0; i < count; i += kLanes) {
      const int n = first(count - i);
      Isa::store_first(out + i, Isa::load_first(floats + i, n), n);
    }
  }
};

}  // namespace
}  // namespace torchyard
