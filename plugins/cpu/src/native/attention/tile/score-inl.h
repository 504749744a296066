// Runs a score program over the scores of one tile against a strip of panels.
//
// A step runs over one row of the strip at a time, so that all values of a row stay in the
// first-level cache; what depends on the head, the query or the key alone is computed once for it.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "attention/tile/layout.h"
#include "attention/tile/visibility-inl.h"
#include "programs/steps-inl.h"

namespace torchyard {
namespace {

template <class Format>
class ScoreTile {
  using Isa = typename Format::Isa;
  using Steps = ProgramSteps<Isa>;
  using Lane = Lanes<Isa>;
  using Int = typename Lane::Int;
  using Long = typename Lane::Long;
  static constexpr int64_t kTileRows = Isa::kTileRows;
  static constexpr int64_t kVectorBytes = Isa::kLanes * 8;
  static constexpr int64_t kColumns = Layout<Format>::kStripPanels * kPanelKeys;
  // The extra line keeps the slots out of each other's cache sets.
  static constexpr int64_t kLineBytes = kColumns * 4 + 64;
  static constexpr int64_t kPanelVectors = kPanelKeys / Isa::kLanes;

 public:
  static size_t bytes(const ForwardArgs& args) {
    if (args.score == nullptr) return 0;
    const int64_t* slots = args.score->slots;
    return static_cast<size_t>((slots[kUniform] + slots[kRow] * kTileRows) * kVectorBytes +
                               (slots[kColumn] + slots[kTile]) * kLineBytes);
  }

  // Values of the item's head are computed when its first visible panel comes.
  ScoreTile(const ForwardArgs& args, const RowsJob& job, std::byte* memory)
      : args_(args), job_(job), program_(*args.score) {
    char* at = reinterpret_cast<char*>(memory);
    for (int shape = 0; shape < kValueShapes; ++shape) {
      values_[shape] = at;
      slot_bytes_[shape] = shape < kColumn ? kVectorBytes : kLineBytes;
      if (shape == kRow) slot_bytes_[shape] *= kTileRows;
      at += program_.slots[shape] * slot_bytes_[shape];
    }
    const ProgramStep* step = program_.steps;
    for (int shape = 0; shape < kValueShapes; ++shape) {
      first_[shape] = step;
      step += program_.counts[shape];
    }
    first_[kValueShapes] = step;
    for (const ProgramStep* s = first_[kColumn]; s < first_[kTile]; ++s) {
      column_reports_ = column_reports_ || is_index(*s);
    }
  }

  // Prepares for the rows from `row` on (the item's numbering) and these panels.
  template <int kRows>
  void begin(int64_t row, const TilePanel<kRows>* keys, int panels) {
    row_ = row;
    rising = false;  // not from another tile: which one that is depends on the number of threads
    const int64_t left = job_.row_count - row;
    live_ = left < kRows ? left : kRows;
    const bool fresh = !started_;
    started_ = true;
    if (fresh) run_group(kUniform, 0, nullptr, 1, keys, panels);
    for (int64_t r = 0; r < live_; ++r) run_group(kRow, r, nullptr, 1, keys, panels);
    bool same = !fresh && !column_reports_ && panels == panels_;
    for (int p = 0; p < panels; ++p) {
      same = same && panel_[p] == keys[p].index;
      panel_[p] = keys[p].index;
    }
    panels_ = panels;
    if (!same) run_group(kColumn, -1, nullptr, panels * kPanelVectors, keys, panels);
  }

  // How many of the tile's rows exist.
  int64_t live() const { return live_; }

  // Modifies row `r` of the tile, which exists: `score` holds panels * 64 scores. Returns where the
  // results are.
  template <int kRows>
  ValueSource apply(int64_t r, const float* score, const TilePanel<kRows>* keys) {
    const char* raw = reinterpret_cast<const char*>(score);
    run_group(kTile, r, raw, panels_ * kPanelVectors, keys, panels_);
    return source(program_.result, r, raw);
  }

  // Whether the row before rose far above its reference: scores that grow with the key (ALiBi) do
  // so in each strip, and an attempt at the old reference would be lost.
  bool rising = false;

  // The first key of a strip's panel, and how many of its keys exist.
  int64_t first_key(int panel) const { return panel_[panel] * kPanelKeys; }
  int64_t key_count(int panel) const {
    const int64_t left = args_.keys - first_key(panel);
    return left < kPanelKeys ? left : kPanelKeys;
  }

  // Where the values of an operand lie for row `r`, whose raw scores are at `raw`.
  ValueSource source(int64_t operand, int64_t r, const char* raw) const {
    if (operand < 0) return {raw, 1};
    const int64_t shape = operand & 3;
    const char* at = values_[shape] + (operand >> 2) * slot_bytes_[shape];
    if (shape == kRow) at += r * kVectorBytes;
    return {at, shape >= kColumn};
  }

 private:
  static bool is_index(const ProgramStep& step) {
    return step.op == ProgramOp::index_i || step.op == ProgramOp::index_l;
  }

  template <int kRows>
  void run_group(int shape, int64_t r, const char* raw, int64_t vectors,
                 const TilePanel<kRows>* keys, int panels) {
    for (const ProgramStep* step = first_[shape]; step < first_[shape + 1]; ++step) {
      char* out = values_[shape] + step->out * slot_bytes_[shape];
      if (shape == kRow) out += r * kVectorBytes;
      const ValueSource a = source(step->a, r, raw);
      switch (step->op) {
        case ProgramOp::input_b:
          fill(out, static_cast<int32_t>(job_.batch));
          break;
        case ProgramOp::input_h:
          fill(out, static_cast<int32_t>(job_.query_head));
          break;
        case ProgramOp::input_q:
          fill(out, static_cast<int32_t>(job_.first_row + row_ + r));
          break;
        case ProgramOp::input_k:
          count_keys(out);
          break;
        case ProgramOp::constant_f:
        case ProgramOp::constant_i:
          fill(out, static_cast<int32_t>(step->extra));
          break;
        case ProgramOp::constant_l: {
          const Long none{};
          Lane::store(out, none + step->extra);
          break;
        }
        case ProgramOp::index_i:
          fit<Int, int32_t>(*step, shape, r, out, vectors, a, keys, panels);
          break;
        case ProgramOp::index_l:
          fit<Long, int64_t>(*step, shape, r, out, vectors, a, keys, panels);
          break;
        default:
          if (step->op >= ProgramOp::load_float32 && step->op <= ProgramOp::load_bool) {
            load(*step, out, a);
            if (shape == kTile) prefetch(*step, r);
          } else {
            Steps::run(*step, out, vectors, a, source(step->b, r, raw), source(step->c, r, raw));
          }
      }
    }
  }

  static void fill(char* out, int32_t value) {
    const Int none{};
    Lane::store(out, none + value);
  }

  void count_keys(char* out) const {
    int32_t* to = reinterpret_cast<int32_t*>(out);
    for (int p = 0; p < panels_; ++p) {
      const int32_t first = static_cast<int32_t>(panel_[p] * kPanelKeys);
      const int32_t last = static_cast<int32_t>(args_.keys - 1);
      for (int32_t i = 0; i < kPanelKeys; ++i) {
        const int32_t key = first + i;
        to[p * kPanelKeys + i] = key < last ? key : last;
      }
    }
  }

  void load(const ProgramStep& step, char* out, ValueSource offset) const {
    int64_t base;
    std::memcpy(&base, offset.at, sizeof(base));
    const int64_t lane_bytes = step.op == ProgramOp::load_int64 ? 8 : 4;
    // Neighbouring panels are loaded as one.
    for (int p = 0; p < panels_;) {
      int end = p + 1;
      while (end < panels_ && panel_[end] == panel_[end - 1] + 1) ++end;
      const int64_t lanes = (end - p) * kPanelKeys;
      Steps::load_panels(step, out + p * kPanelKeys * lane_bytes,
                         base + step.extra * panel_[p] * kPanelKeys,
                         lanes - kPanelKeys + key_count(end - 1), lanes);
      p = end;
    }
  }

  // Asks for what the next tile of rows will load, guessing that rows are equally far apart.
  void prefetch(const ProgramStep& step, int64_t r) const {
    const int64_t other = r == 0 ? 1 : r - 1;
    if (other >= live_) return;
    int64_t mine;
    int64_t near;
    std::memcpy(&mine, source(step.a, r, nullptr).at, sizeof(mine));
    std::memcpy(&near, source(step.a, other, nullptr).at, sizeof(near));
    const int64_t ahead = mine + (r == 0 ? near - mine : mine - near) * kTileRows;
    if (step.extra != 1 && step.extra != -1) return;
    const int64_t element = Steps::stored_bytes(step.op);
    for (int p = 0; p < panels_; ++p) {
      const int64_t first = ahead + step.extra * panel_[p] * kPanelKeys;
      for (int64_t i = 0; i < kPanelKeys; i += 64 / element) {
        __builtin_prefetch(reinterpret_cast<const char*>(
            static_cast<intptr_t>(step.data + (first + step.extra * i) * element)));
      }
    }
  }

  // Makes indices fit; see ProgramOp::index_i.
  template <class V, class T, int kRows>
  void fit(const ProgramStep& step, int shape, int64_t r, char* out, int64_t vectors, ValueSource a,
           const TilePanel<kRows>* keys, int panels) {
    const T size = static_cast<T>(step.extra);
    V outside{};
    for (int64_t i = 0; i < vectors; ++i) {
      V index = Steps::template get<V>(a, i);
      index += (index < 0) & size;
      const V wrong = (index < 0) | (index >= size);
      outside |= wrong;
      Lane::store(out + i * static_cast<int64_t>(sizeof(V)), index & ~wrong);
    }
    T any = 0;
    for (int j = 0; j < Isa::kLanes; ++j) any |= outside[j];
    if (any == 0) return;
    for (int64_t i = 0; i < vectors; ++i) {
      const V index = Steps::template get<V>(a, i);
      for (int j = 0; j < Isa::kLanes; ++j) {
        const T value = index[j];
        if (value >= size || value < -size) {
          report(step, value, shape, r, i * Isa::kLanes + j, keys, panels);
        }
      }
    }
  }

  template <int kRows>
  void report(const ProgramStep& step, int64_t value, int shape, int64_t r, int64_t column,
              const TilePanel<kRows>* keys, int panels) const {
    bool visible = shape == kUniform;
    for (int64_t row = 0; row < live_; ++row) {
      if (shape != kColumn && row != r) continue;
      for (int p = 0; p < panels; ++p) {
        if (shape >= kColumn && p != column / kPanelKeys) continue;
        const uint64_t word = keys[p].masked ? keys[p].word[row] : ~uint64_t{0};
        visible = visible || (shape == kRow ? word != 0 : (word >> (column % kPanelKeys)) & 1);
      }
    }
    if (!visible) return;
    __atomic_store_n(&program_.failure->value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&program_.failure->step, &step - program_.steps, __ATOMIC_RELAXED);
  }

  const ForwardArgs& args_;
  const RowsJob& job_;
  const ScoreProgram& program_;
  char* values_[kValueShapes];
  int64_t slot_bytes_[kValueShapes];
  const ProgramStep* first_[kValueShapes + 1];
  bool column_reports_ = false;
  bool started_ = false;
  int64_t row_ = 0;
  int64_t live_ = 0;
  int64_t panel_[Layout<Format>::kStripPanels];
  int panels_ = 0;
};

}  // namespace
}  // namespace torchyard
