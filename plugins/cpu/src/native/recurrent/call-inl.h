// A call of recurrent layers on some sequences of a batch: its phases, and its working memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/threads.h"
#include "recurrent/layout.h"
#include "recurrent/team.h"

namespace torchyard {
namespace {

// Rows of inputs that are multiplied at a time: enough that a panel of weights, once in the cache,
// is used often, and few enough that the sums are still there when their steps come.
constexpr int64_t kStretchRows = 384;
constexpr int64_t kTileRows = 48;  // a multiple of each kernel's rows
// As kStretchRows, of a thread that has sequences of its own: each such thread has these sums.
constexpr int64_t kOwnStretchRows = 96;

int64_t rounded_up(int64_t size, int64_t to) { return ceil_div(size, to) * to; }

// Operands from one row to the next. Some rows are read side by side: where they lay a power of two
// apart, they would share a few sets of the first-level cache.
int64_t apart(int64_t operands, const RecurrentKernel& kernel) {
  return operands + 64 / kernel.operand_bytes;
}
constexpr int64_t kLineFloats = 16;

// Some of a batch, side by side.
struct Sequences {
  int64_t first;
  int64_t count;
};

// Runs all layers over some sequences, on the threads that call work().
class Call {
 public:
  Call(const RecurrentArgs& args, const RecurrentKernel& kernel, Sequences sequences, int shares)
      : args_(args), sizes_(args.sizes), kernel_(kernel), sequences_(sequences), team_(shares) {
    // A panel of plain units is the widest.
    const int64_t panel = 4 * kernel.lanes;
    state_stride_ = apart(rounded_up(sizes_.outputs, panel), kernel);
    cell_stride_ = apart(rounded_up(sizes_.hidden, panel), kernel);
    const int64_t together = sequences.count < args.batch ? kOwnStretchRows : kStretchRows;
    stretch_ = std::max<int64_t>(1, together / std::max<int64_t>(1, sequences.count));
    stretch_ = std::min(stretch_, args.steps);
    const CellLayout first(sizes_, kernel, 0);
    const CellLayout last(sizes_, kernel, sizes_.layers * sizes_.directions - 1);
    sums_stride_ = first.hh.width(kernel) + kLineFloats;
    tile_stride_ = apart(std::max(first.ih.words, last.ih.words) * kernel.pair, kernel);
  }

  // Lays working memory out from `block`; returns its size.
  size_t place(std::byte* block) {
    size_t size = 0;
    const auto part = [&](int64_t bytes) {
      std::byte* at = block == nullptr ? nullptr : block + size;
      size += page_rounded(static_cast<size_t>(bytes));
      return at;
    };
    const int64_t batch = sequences_.count;
    constexpr int64_t kFloat = sizeof(float);
    sums_ = reinterpret_cast<float*>(part(stretch_ * batch * sums_stride_ * kFloat));
    const int64_t rows = rounded_up(batch, kernel_.rows);
    for (std::byte*& state : state_) state = part(rows * state_stride_ * kernel_.operand_bytes);
    unprojected_ = part(sizes_.projected ? rows * cell_stride_ * kernel_.operand_bytes : 0);
    cell_ = reinterpret_cast<float*>(
        part(sizes_.kind == RecurrentKind::kLstm ? batch * cell_stride_ * kFloat : 0));
    tile_bytes_ =
        page_rounded(static_cast<size_t>(kTileRows * tile_stride_ * kernel_.operand_bytes));
    tiles_ = part(static_cast<int64_t>(tile_bytes_) * team_.shares());
    const int64_t between = args_.steps * batch * output_stride() * kernel_.element_bytes;
    for (int i = 0; i < 2; ++i) between_[i] = part(sizes_.layers > i + 1 ? between : 0);
    return size;
  }

  void work() {
    Team::Member member(team_);
    if (member.place() < 0) return;
    for (int64_t layer = 0; layer < sizes_.layers; ++layer) {
      for (int64_t direction = 0; direction < sizes_.directions; ++direction) {
        Cell cell(*this, layer, direction);
        cell.run(member);
      }
    }
  }

 private:
  int64_t output_stride() const { return sizes_.directions * sizes_.outputs; }

  // One layer and direction.
  class Cell {
   public:
    Cell(Call& call, int64_t layer, int64_t direction)
        : call_(call),
          layer_(layer),
          direction_(direction),
          index_(layer * call.sizes_.directions + direction),
          at_(call.sizes_, call.kernel_, index_) {}

    void run(Team::Member& member) {
      const RecurrentArgs& args = call_.args_;
      member.drawn(1, [&](int64_t) { begin(); });
      for (int64_t done = 0; done < args.steps; done += call_.stretch_) {
        const int64_t count = std::min(call_.stretch_, args.steps - done);
        // Steps in the order of time, whichever way they are taken.
        const int64_t first = direction_ == 0 ? done : args.steps - done - count;
        multiply_inputs(member, first, count);
        for (int64_t i = 0; i < count; ++i) {
          step(member, first, direction_ == 0 ? first + i : first + count - 1 - i, done + i);
        }
      }
      member.drawn(1, [&](int64_t) { end(); });
    }

   private:
    void begin() {
      const RecurrentArgs& args = call_.args_;
      const RecurrentSizes& sizes = call_.sizes_;
      const RecurrentKernel& kernel = call_.kernel_;
      const int64_t row = index_ * args.batch + call_.sequences_.first;
      const std::byte* hidden =
          static_cast<const std::byte*>(args.hidden) + row * sizes.outputs * kernel.element_bytes;
      for (int64_t b = 0; b < call_.sequences_.count; ++b) {
        const int64_t at = b * call_.state_stride_ * kernel.operand_bytes;
        kernel.to_operands(hidden + b * sizes.outputs * kernel.element_bytes, call_.state_[0] + at,
                           sizes.outputs, call_.state_stride_);
        std::memset(call_.state_[1] + at, 0,
                    static_cast<size_t>(call_.state_stride_ * kernel.operand_bytes));
      }
      if (sizes.kind != RecurrentKind::kLstm) return;
      const std::byte* cell =
          static_cast<const std::byte*>(args.cell) + row * sizes.hidden * kernel.element_bytes;
      for (int64_t b = 0; b < call_.sequences_.count; ++b) {
        float* out = call_.cell_ + b * call_.cell_stride_;
        kernel.widen(cell + b * sizes.hidden * kernel.element_bytes, out, sizes.hidden);
        std::fill(out + sizes.hidden, out + call_.cell_stride_, 0.0f);
      }
    }

    void end() {
      const RecurrentArgs& args = call_.args_;
      const RecurrentSizes& sizes = call_.sizes_;
      const RecurrentKernel& kernel = call_.kernel_;
      const std::byte* state = call_.state_[args.steps % 2];
      for (int64_t b = 0; b < call_.sequences_.count; ++b) {
        const int64_t row = index_ * args.batch + call_.sequences_.first + b;
        kernel.from_operands(
            state + b * call_.state_stride_ * kernel.operand_bytes,
            static_cast<std::byte*>(args.hidden_out) + row * sizes.outputs * kernel.element_bytes,
            sizes.outputs);
        if (sizes.kind != RecurrentKind::kLstm) continue;
        kernel.narrow(
            call_.cell_ + b * call_.cell_stride_,
            static_cast<std::byte*>(args.cell_out) + row * sizes.hidden * kernel.element_bytes,
            sizes.hidden);
      }
    }

    // The layer's input at a step, of sequence `b` of these.
    const std::byte* input(int64_t step, int64_t b) const {
      const RecurrentArgs& args = call_.args_;
      const int64_t bytes = call_.kernel_.element_bytes;
      if (layer_ == 0) {
        return static_cast<const std::byte*>(args.input) +
               (step * args.input_step + (call_.sequences_.first + b) * args.input_row) * bytes;
      }
      return call_.between_[(layer_ - 1) % 2] +
             (step * call_.sequences_.count + b) * call_.output_stride() * bytes;
    }

    // sums(r, :) = bias + Wx x for the rows r = (step - first) * B + b of some steps.
    void multiply_inputs(Team::Member& member, int64_t first, int64_t count) {
      const int64_t rows = count * call_.sequences_.count;
      const int64_t tiles = ceil_div(rows, kTileRows);
      const int shares = call_.team_.shares();
      // Who will take the steps of a panel multiplies its inputs too: these weights and these sums
      // are then in that thread's cache, and in no other's.
      if (at_.ih.count >= 4 * shares) {
        member.shared([&](int share) {
          for (int64_t tile = 0; tile < tiles; ++tile) {
            multiply_tile(member, first, rows, tile, share, shares);
          }
        });
        return;
      }
      // Few rows are divided by panels instead.
      const int64_t wanted = tiles >= 4 * shares ? 1 : 2 * shares;
      const int64_t groups = std::min(wanted, at_.ih.count);
      member.drawn(tiles * groups, [&](int64_t item) {
        multiply_tile(member, first, rows, item / groups, item % groups, groups);
      });
    }

    // The same of some rows, and of a share of the panels.
    void multiply_tile(const Team::Member& member, int64_t first, int64_t rows, int64_t tile,
                       int64_t share, int64_t shares) {
      const RecurrentKernel& kernel = call_.kernel_;
      const int64_t batch = call_.sequences_.count;
      const int64_t row = tile * kTileRows;
      const int64_t here = std::min(kTileRows, rows - row);
      std::byte* operands = call_.tiles_ + static_cast<size_t>(member.place()) * call_.tile_bytes_;
      const int64_t stride = apart(at_.ih.words * kernel.pair, kernel);
      for (int64_t r = 0; r < here; ++r) {
        kernel.to_operands(input(first + (row + r) / batch, (row + r) % batch),
                           operands + r * stride * kernel.operand_bytes, at_.ih.columns, stride);
      }
      kernel.product({operands, stride, here, call_.args_.packed + at_.ih_at, at_.ih.words,
                      at_.ih.vectors, at_.ih.count * share / shares,
                      at_.ih.count * (share + 1) / shares, floats(at_.inputs_bias_at),
                      call_.sums_ + row * call_.sums_stride_, call_.sums_stride_});
    }

    const float* floats(int64_t offset) const {
      return reinterpret_cast<const float*>(call_.args_.packed + offset);
    }

    // Takes step `t`, the number `taken` of this direction; sums begin at step `first`.
    void step(Team::Member& member, int64_t first, int64_t t, int64_t taken) {
      RecurrentStepJob job = job_of(first, t, taken);
      member.shared([&](int share) { run_share(job, at_.hh, share); });
      if (!call_.sizes_.projected) return;
      RecurrentStepJob projection = job;
      projection.projection = true;
      projection.units = at_.hr.units;
      projection.panels = call_.args_.packed + at_.hr_at;
      projection.words = at_.hr.words;
      projection.bias = nullptr;
      projection.before = call_.unprojected_;
      projection.before_stride = call_.cell_stride_;
      member.shared([&](int share) { run_share(projection, at_.hr, share); });
    }

    void run_share(RecurrentStepJob job, const Panels& panels, int share) const {
      job.first_panel = panels.count * share / call_.team_.shares();
      job.end_panel = panels.count * (share + 1) / call_.team_.shares();
      call_.kernel_.step(job);
    }

    RecurrentStepJob job_of(int64_t first, int64_t t, int64_t taken) const {
      const RecurrentArgs& args = call_.args_;
      const RecurrentSizes& sizes = call_.sizes_;
      RecurrentStepJob job = {};
      job.kind = sizes.kind;
      job.batch = call_.sequences_.count;
      job.units = sizes.hidden;
      job.panels = args.packed + at_.hh_at;
      job.words = at_.hh.words;
      job.bias = floats(at_.recurrent_bias_at);
      job.inputs = call_.sums_ + (t - first) * job.batch * call_.sums_stride_;
      job.inputs_stride = call_.sums_stride_;
      job.before = job.state = call_.state_[taken % 2];
      job.after = call_.state_[(taken + 1) % 2];
      job.before_stride = job.state_stride = call_.state_stride_;
      job.cell = call_.cell_;
      job.cell_stride = job.unprojected_stride = call_.cell_stride_;
      if (sizes.projected) job.unprojected = call_.unprojected_;
      const int64_t row = t * args.batch + call_.sequences_.first;
      job.output_stride = call_.output_stride();
      std::byte* output = layer_ + 1 == sizes.layers
                              ? static_cast<std::byte*>(args.output) +
                                    row * job.output_stride * call_.kernel_.element_bytes
                              : call_.between_[layer_ % 2] +
                                    t * job.batch * job.output_stride * call_.kernel_.element_bytes;
      job.output = output + direction_ * sizes.outputs * call_.kernel_.element_bytes;
      job.hidden = sizes.hidden;
      job.reserve_stride = sizes.kind == RecurrentKind::kLstm  ? 5 * sizes.hidden + sizes.outputs
                           : sizes.kind == RecurrentKind::kGru ? 5 * sizes.hidden
                                                               : sizes.hidden;
      if (args.reserve != nullptr) {
        job.reserve = args.reserve + (index_ * args.steps * args.batch + row) * job.reserve_stride;
      }
      if (args.lengths != nullptr) job.lengths = args.lengths + call_.sequences_.first;
      job.step = t;
      return job;
    }

    Call& call_;
    const int64_t layer_;
    const int64_t direction_;
    const int64_t index_;
    const CellLayout at_;
  };

  const RecurrentArgs& args_;
  const RecurrentSizes& sizes_;
  const RecurrentKernel& kernel_;
  const Sequences sequences_;
  Team team_;
  int64_t state_stride_;
  int64_t cell_stride_;
  int64_t sums_stride_;
  int64_t tile_stride_;
  int64_t stretch_;
  float* sums_ = nullptr;
  std::byte* state_[2] = {};
  std::byte* unprojected_ = nullptr;
  float* cell_ = nullptr;
  std::byte* tiles_ = nullptr;
  size_t tile_bytes_ = 0;
  std::byte* between_[2] = {};
};

}  // namespace
}  // namespace torchyard
