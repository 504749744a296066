// Runs a program over a rectangle, a row of at most 256 columns at a time, so that all values of
// such a row stay in the first-level cache.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/isa/kernel_table.h"
#include "programs/program.h"
#include "programs/steps-inl.h"
#include "programs/streams.h"

namespace torchyard {
namespace {

template <class Isa>
class ProgramTile {
  using Steps = ProgramSteps<Isa>;
  using Lane = Lanes<Isa>;
  using Float = typename Lane::Float;
  using Int = typename Lane::Int;
  using Long = typename Lane::Long;
  static constexpr int64_t kLanes = Isa::kLanes;
  static constexpr int64_t kColumns = 256;
  // Of the widest vector, of int64 lanes.
  static constexpr int64_t kVectorBytes = kLanes * 8 < 64 ? 64 : kLanes * 8;
  // The extra cache line keeps the slots out of each other's cache sets.
  static constexpr int64_t kLineBytes = kColumns * 4 + 64;

 public:
  static size_t bytes(const Program& program) {
    const int64_t lines = program.slots[kColumn] + program.slots[kTile];
    return static_cast<size_t>((program.slots[kUniform] + program.slots[kRow]) * kVectorBytes +
                               lines * kLineBytes + lines * 8 + program.counts[kTile]);
  }

  static void run(const Program& program, const ProgramPlace* operands, const ProgramPlace* results,
                  int64_t rows, int64_t columns, std::byte* memory) {
    ProgramTile tile(program, operands, results, reinterpret_cast<char*>(memory));
    if (rows <= 0 || columns <= 0) return;
    if (columns > 2 * kColumns) tile.find_streams();
    tile.compute(kUniform, 0, 0, 1);
    for (int64_t first = 0; first < columns;) {
      int64_t count = columns - first < kColumns ? columns - first : kColumns;
      // Whole vectors are read in place, so the rest of one is a call of its own.
      if (count > kLanes) count -= count % kLanes;
      tile.compute(kColumn, 0, first, count);
      // Not the next columns but those after them: the last share would come too late.
      const int64_t next = first + count + kColumns;
      const int64_t ahead = columns - next < count ? columns - next : count;
      for (int64_t row = 0; row < rows; ++row) {
        tile.streams_.aim(row, next, ahead);
        tile.compute(kRow, row, first, 1);
        tile.compute(kTile, row, first, count);
        tile.streams_.fetch_rest();
        tile.store(row, first, count);
      }
      first += count;
    }
  }

 private:
  ProgramTile(const Program& program, const ProgramPlace* operands, const ProgramPlace* results,
              char* memory)
      : program_(program), operands_(operands), results_(results) {
    const ProgramStep* step = program.steps;
    char* at = memory;
    for (int shape = 0; shape < kValueShapes; ++shape) {
      first_[shape] = step;
      step += program.counts[shape];
      values_[shape] = at;
      at += program.slots[shape] * (shape < kColumn ? kVectorBytes : kLineBytes);
    }
    first_[kValueShapes] = step;
    line_[0] = reinterpret_cast<const char**>(at);
    line_[1] = line_[0] + program.slots[kColumn];
    early_ = reinterpret_cast<unsigned char*>(line_[1] + program.slots[kTile]);
    find_early();
  }

  // A float32 result is computed where it belongs, unless something that lies there is read later.
  void find_early() {
    const int64_t count = program_.counts[kTile];
    std::memset(early_, 0, static_cast<size_t>(count));
    for (int64_t i = 0; i < program_.result_count; ++i) {
      const ProgramResult& result = program_.results[i];
      if (result.element != Element::kFloat32 || (result.value & 3) != kTile ||
          results_[i].column != 1) {
        continue;
      }
      bool fits = true;
      for (int64_t j = 0; j < program_.operand_count; ++j) {
        const bool later = (result.late >> j & 1) != 0;
        fits = fits && !(later && operands_[j].data == results_[i].data);
      }
      int64_t at = count - 1;
      while (at >= 0 && first_[kTile][at].out != result.value >> 2) --at;
      if (!fits || at < 0 || early_[at] != 0 || is_load(first_[kTile][at])) continue;
      early_[at] = static_cast<unsigned char>(i + 1);
    }
  }

  void find_streams() {
    int64_t steps = 0;
    for (int64_t i = 0; i < program_.counts[kTile]; ++i) steps += !is_load(first_[kTile][i]);
    streams_.find(program_, operands_, results_, steps);
  }

  static bool is_load(const ProgramStep& step) {
    return step.op >= ProgramOp::load_float32 && step.op <= ProgramOp::load_bool;
  }

  char* place(int64_t shape, int64_t slot) const {
    return values_[shape] + slot * (shape < kColumn ? kVectorBytes : kLineBytes);
  }

  ValueSource source(int64_t operand) const {
    if (operand < 0) return {nullptr, 0};
    const int64_t shape = operand & 3;
    if (shape < kColumn) return {place(shape, operand >> 2), 0};
    return {line_[shape - kColumn][operand >> 2], 1};
  }

  void compute(int shape, int64_t row, int64_t first, int64_t count) {
    const int64_t vectors = (count + kLanes - 1) / kLanes;
    for (const ProgramStep* step = first_[shape]; step < first_[shape + 1]; ++step) {
      char* out = place(shape, step->out);
      if (shape == kTile && early_[step - first_[kTile]] != 0 && count % kLanes == 0) {
        const int64_t result = early_[step - first_[kTile]] - 1;
        out = shifted(results_[result], Element::kFloat32, row, first).data;
      }
      if (shape >= kColumn) line_[shape - kColumn][step->out] = out;
      switch (step->op) {
        case ProgramOp::constant_f:
        case ProgramOp::constant_i:
          fill<Int>(out, static_cast<int32_t>(step->extra));
          break;
        case ProgramOp::constant_l:
          fill<Long>(out, step->extra);
          break;
        default:
          if (is_load(*step)) {
            load(*step, shape, out, row, first, count);
          } else {
            Steps::run(*step, out, vectors, source(step->a), source(step->b), source(step->c));
            if (shape == kTile) streams_.fetch_some();
          }
      }
    }
  }

  template <class V, class T>
  static void fill(char* out, T value) {
    const V none{};
    Lane::store(out, none + value);
  }

  void load(const ProgramStep& step, int shape, char* out, int64_t row, int64_t first,
            int64_t count) {
    const ProgramPlace from =
        shifted(operands_[step.data], program_.operands[step.data], row, first);
    if (shape >= kColumn && step.op == ProgramOp::load_float32 && from.column == 1 &&
        count % kLanes == 0) {
      line_[shape - kColumn][step.out] = from.data;
      return;
    }
    ProgramStep at = step;
    at.data = static_cast<int64_t>(reinterpret_cast<intptr_t>(from.data));
    at.extra = from.column;
    if (shape >= kColumn && from.column != 0) {
      Steps::load_panels(at, out, 0, count, (count + kLanes - 1) / kLanes * kLanes);
      return;
    }
    Steps::load_panels(at, out, 0, 1, 1);
    const int64_t vectors = shape < kColumn ? 1 : (count + kLanes - 1) / kLanes;
    if (step.op == ProgramOp::load_int64) {
      repeat<Long, int64_t>(out, vectors);
    } else {
      repeat<Int, int32_t>(out, vectors);
    }
  }

  template <class V, class T>
  static void repeat(char* out, int64_t vectors) {
    T value;
    std::memcpy(&value, out, sizeof(value));
    for (int64_t i = 0; i < vectors; ++i) {
      fill<V>(out + i * static_cast<int64_t>(sizeof(V)), value);
    }
  }

  // Writes the results of a row. Those that lie where an operand does are saved first, because
  // another result may be written there.
  void store(int64_t row, int64_t first, int64_t count) {
    for (int64_t i = 0; i < program_.result_count && program_.result_count > 1; ++i) {
      const int64_t value = program_.results[i].value;
      const int64_t shape = value & 3;
      if (shape < kColumn) continue;
      char* own = place(shape, value >> 2);
      const char*& line = line_[shape - kColumn][value >> 2];
      if (line == own ||
          line == shifted(results_[i], program_.results[i].element, row, first).data) {
        continue;
      }
      std::memcpy(own, line, static_cast<size_t>(count) * 4);
      if (shape == kTile) line = own;
    }
    for (int64_t i = 0; i < program_.result_count; ++i) {
      const ProgramResult& result = program_.results[i];
      const ProgramPlace to = shifted(results_[i], result.element, row, first);
      const ValueSource from = source(result.value);
      if (from.at == to.data) continue;  // it was computed there, or never left
      switch (result.element) {
        case Element::kFloat32:
          put_floats<float>(to, from, count);
          break;
        case Element::kBFloat16:
          put_floats<Bf16>(to, from, count);
          break;
        case Element::kFloat16:
          put_floats<F16>(to, from, count);
          break;
        case Element::kInt64:
          put<int64_t, int64_t>(to, from, count);
          break;
        case Element::kInt32:
          put<int32_t, int32_t>(to, from, count);
          break;
        case Element::kInt16:
          put<int16_t, int32_t>(to, from, count);
          break;
        case Element::kInt8:
          put<int8_t, int32_t>(to, from, count);
          break;
        case Element::kUInt8:
          put<uint8_t, int32_t>(to, from, count);
          break;
        case Element::kBool:
          put<bool, int32_t>(to, from, count);
          break;
      }
    }
  }

  template <class T>
  static void put_floats(ProgramPlace to, ValueSource from, int64_t count) {
    T* out = reinterpret_cast<T*>(to.data);
    for (int64_t i = 0; i < count; i += kLanes) {
      const int n = static_cast<int>(count - i < kLanes ? count - i : kLanes);
      const Float v = Steps::template get<Float>(from, i / kLanes);
      if (to.column == 1) {
        Isa::store_first(out + i, v, n);
      } else {
        T lane[kLanes];
        Isa::store_first(lane, v, kLanes);
        for (int j = 0; j < n; ++j) out[(i + j) * to.column] = lane[j];
      }
    }
  }

  template <class T, class LaneT>
  static void put(ProgramPlace to, ValueSource from, int64_t count) {
    T* out = reinterpret_cast<T*>(to.data);
    const LaneT* lane = reinterpret_cast<const LaneT*>(from.at);
    // A single value is in all lanes of its one vector.
    for (int64_t i = 0; i < count; ++i) {
      out[i * to.column] = static_cast<T>(lane[from.step == 0 ? 0 : i]);
    }
  }

  const Program& program_;
  const ProgramPlace* operands_;
  const ProgramPlace* results_;
  ProgramStreams streams_;
  const ProgramStep* first_[kValueShapes + 1];
  char* values_[kValueShapes];
  const char** line_[2];  // where the values of column and tile slots lie
  // Of each tile step 0, or 1 more than the result that it computes where that belongs.
  unsigned char* early_;
};

}  // namespace
}  // namespace torchyard

// The initialiser of the ProgramKernel program_<set>.
#define TORCHYARD_PROGRAM(set, Isa) \
  {"program_" #set, #set, isa::set.required, ProgramTile<Isa>::bytes, ProgramTile<Isa>::run}
