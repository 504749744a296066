#include "recurrent/recurrent.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/threads.h"
#include "recurrent/call-inl.h"
#include "recurrent/layout.h"

namespace torchyard {

namespace {

// One matrix, a few panels per item.
struct Packing {
  const RecurrentKernel& kernel;
  const Panels& shape;
  const void* weight;
  std::byte* panels;
  std::atomic<int64_t> next{0};

  void work() {
    const int64_t each = 4;
    for (int64_t first; (first = next.fetch_add(each, std::memory_order_relaxed)) < shape.count;) {
      const int64_t end = first + each < shape.count ? first + each : shape.count;
      kernel.pack(
          {weight, shape.gates, shape.units, shape.columns, shape.vectors, panels, first, end});
    }
  }
};

void pack_matrix(const RecurrentKernel& kernel, const Panels& shape, const void* weight,
                 std::byte* panels, int threads) {
  // Below this the threads would wake for less than they cost.
  constexpr int64_t kWorthThreads = 64 << 10;
  Packing packing{kernel, shape, weight, panels};
  run_on_threads(
      shape.bytes(kernel) < kWorthThreads ? 1 : threads,
      [](void* p) { static_cast<Packing*>(p)->work(); }, &packing);
}

// Adds a bias [gates * units] of floats to floats in the order of a panel's columns; only those
// gates that `mask` has a bit of.
void add_bias(const RecurrentKernel& kernel, const Panels& shape, const float* bias, unsigned mask,
              float* out) {
  for (int64_t p = 0; p < shape.count; ++p) {
    for (int64_t v = 0; v < shape.vectors; ++v) {
      const int64_t gate = v % shape.gates;
      const int64_t unit = (p * (shape.vectors / shape.gates) + v / shape.gates) * kernel.lanes;
      if ((mask >> gate & 1u) == 0) continue;
      for (int64_t lane = 0; lane < kernel.lanes && unit + lane < shape.units; ++lane) {
        out[(p * shape.vectors + v) * kernel.lanes + lane] +=
            bias[gate * shape.units + unit + lane];
      }
    }
  }
}

// Products of a step below which a second thread costs more than it saves.
constexpr int64_t kWorthThreads = 32 << 10;
// Bytes of weights per step that a second-level cache holds, near enough.
constexpr int64_t kOwnWeights = 1 << 20;
constexpr int64_t kOwnSequences = 4;

int shares_for(const RecurrentArgs& args, int threads) {
  const RecurrentSizes& sizes = args.sizes;
  const int64_t products = args.batch * sizes.gates() * sizes.hidden * sizes.outputs;
  if (products < kWorthThreads) return 1;
  return std::min(threads, Team::kMost);
}

// Whether each thread takes sequences of its own through all steps, and waits for no other. It then
// reads all weights at each step, which must stay in a cache that it has for itself; and sequences
// must be enough that a weight, once in a register, is multiplied as often as it costs to bring.
bool by_sequences(const RecurrentArgs& args, const RecurrentKernel& kernel, int shares) {
  const CellLayout last(args.sizes, kernel, args.sizes.layers * args.sizes.directions - 1);
  const int64_t weights =
      last.hh.bytes(kernel) + (args.sizes.projected ? last.hr.bytes(kernel) : 0);
  return shares > 1 && weights <= kOwnWeights &&
         args.batch >= shares * std::max<int64_t>(kOwnSequences, kernel.rows);
}

// A batch in parts, each a call of one thread.
struct Parts {
  const RecurrentArgs& args;
  const RecurrentKernel& kernel;
  int64_t count;
  std::byte* block = nullptr;
  size_t size = 0;  // of the working memory of one
  std::atomic<int64_t> next{0};

  Sequences of(int64_t part) const {
    const int64_t first = args.batch * part / count;
    return {first, args.batch * (part + 1) / count - first};
  }

  // The last part has the most sequences, and the first may take the most steps at a time.
  size_t most() const {
    return std::max(Call(args, kernel, of(0), 1).place(nullptr),
                    Call(args, kernel, of(count - 1), 1).place(nullptr));
  }

  void work() {
    for (int64_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      Call call(args, kernel, of(part), 1);
      call.place(block + static_cast<size_t>(part) * size);
      call.work();
    }
  }
};

// Calls task(block) with so many bytes, of NaN where they are poisoned.
template <class Task>
Status with_memory(size_t size, bool poison, const Task& task) {
  Scratch& scratch = thread_scratch();
  std::byte* block = scratch.acquire(size);
  if (block == nullptr) return Status::kOutOfMemory;
  if (poison) std::memset(block, 0xff, size);
  task(block);
  scratch.release();
  return Status::kOk;
}

}  // namespace

size_t recurrent_packed_bytes(const RecurrentSizes& sizes, const RecurrentKernel& kernel) {
  const int64_t last = sizes.layers * sizes.directions - 1;
  return static_cast<size_t>(CellLayout(sizes, kernel, last).end);
}

Status recurrent_pack(const RecurrentSizes& sizes, const CellWeights* weights,
                      const RecurrentKernel& kernel, std::byte* packed, int threads) {
  Scratch& scratch = thread_scratch();
  const int64_t rows = sizes.gates() * sizes.hidden;
  float* wide =
      reinterpret_cast<float*>(scratch.acquire(static_cast<size_t>(rows) * sizeof(float)));
  if (wide == nullptr) return Status::kOutOfMemory;
  for (int64_t index = 0; index < sizes.layers * sizes.directions; ++index) {
    const CellLayout at(sizes, kernel, index);
    const CellWeights& from = weights[index];
    pack_matrix(kernel, at.ih, from.w_ih, packed + at.ih_at, threads);
    pack_matrix(kernel, at.hh, from.w_hh, packed + at.hh_at, threads);
    if (sizes.projected) pack_matrix(kernel, at.hr, from.w_hr, packed + at.hr_at, threads);
    const size_t bias_bytes = static_cast<size_t>(at.hh.width(kernel)) * sizeof(float);
    float* inputs_bias = reinterpret_cast<float*>(packed + at.inputs_bias_at);
    float* recurrent_bias = reinterpret_cast<float*>(packed + at.recurrent_bias_at);
    std::memset(inputs_bias, 0, bias_bytes);
    std::memset(recurrent_bias, 0, bias_bytes);
    if (from.b_ih == nullptr) continue;
    // The reset gate of a GRU multiplies the recurrent product with its bias.
    const unsigned late = sizes.kind == RecurrentKind::kGru ? 4u : 0u;
    kernel.widen(from.b_ih, wide, rows);
    add_bias(kernel, at.hh, wide, ~0u, inputs_bias);
    kernel.widen(from.b_hh, wide, rows);
    add_bias(kernel, at.hh, wide, ~late, inputs_bias);
    add_bias(kernel, at.hh, wide, late, recurrent_bias);
  }
  scratch.release();
  return Status::kOk;
}

Status recurrent_forward(const RecurrentArgs& args, const RecurrentKernel& kernel, int threads,
                         bool poison) {
  const int shares = shares_for(args, threads);
  if (by_sequences(args, kernel, shares)) {
    Parts parts{args, kernel, shares};
    parts.size = parts.most();
    return with_memory(parts.size * static_cast<size_t>(parts.count), poison, [&](std::byte* at) {
      parts.block = at;
      run_on_threads(shares, [](void* p) { static_cast<Parts*>(p)->work(); }, &parts);
    });
  }
  Call call(args, kernel, {0, args.batch}, shares);
  return with_memory(call.place(nullptr), poison, [&](std::byte* at) {
    call.place(at);
    run_on_threads(shares, [](void* c) { static_cast<Call*>(c)->work(); }, &call);
  });
}

Status recurrent_forward_packing(const RecurrentArgs& args, const CellWeights* weights,
                                 const RecurrentKernel& kernel, int threads) {
  // Not the thread's block for working memory, which both of these use.
  thread_local Scratch kept;
  std::byte* packed = kept.acquire(recurrent_packed_bytes(args.sizes, kernel));
  if (packed == nullptr) return Status::kOutOfMemory;
  Status status = recurrent_pack(args.sizes, weights, kernel, packed, threads);
  if (status == Status::kOk) {
    RecurrentArgs with = args;
    with.packed = packed;
    status = recurrent_forward(with, kernel, threads, false);
  }
  kept.release();
  return status;
}

}  // namespace torchyard
