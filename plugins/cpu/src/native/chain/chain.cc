#include "chain/chain.h"

#include <cmath>
#include <cstring>

#include "base/aligned.h"
#include "base/status.h"

namespace torchyard {

namespace {

constexpr size_t kAlignment = 64;
// Sums side by side, which a compiler makes vectors of and which lose less than a single one.
constexpr int kParts = 16;

struct Bases {
  const ChainInput* inputs;
  char* made;
  char* memory;

  char* at(const ChainPlace& place) const {
    char* base = place.base == kChainMade     ? made
                 : place.base == kChainMemory ? memory
                                              : inputs[place.base].data;
    return base + place.offset;
  }
  int64_t row(const ChainPlace& place) const {
    return place.row >= 0 ? place.row : inputs[place.base].strides[-1 - place.row];
  }
};

float scale_of(const float* squares, int64_t count, float epsilon) {
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (int p = 0; p < kParts; ++p) parts[p] += squares[i + p];
  }
  for (int p = 0; i < count; ++i, ++p) parts[p] += squares[i];
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int p = 0; p < half; ++p) parts[p] += parts[p + half];
  }
  return 1.0f / std::sqrt(parts[0] / static_cast<float>(count) + epsilon);
}

void run_program(const ChainStage& stage, const Bases& bases, std::byte* memory) {
  ProgramPlace places[kMaxChainPlaces];
  const int64_t operands = stage.program->operand_count;
  for (int64_t i = 0; i < operands + stage.program->result_count; ++i) {
    const ChainPlace& place = stage.places[i];
    places[i] = {bases.at(place), bases.row(place), place.column};
  }
  stage.program_kernel->run(*stage.program, places, places + operands, stage.rows, stage.columns,
                            memory);
}

bool run_quantised(const ChainStage& stage, const Bases& bases, int threads) {
  QuantisedArgs args = stage.quantised_args;
  args.x = bases.at(stage.x);
  args.out = bases.at(stage.out);
  args.bias = stage.biased ? bases.at(stage.bias) : nullptr;
  return quantised_linear(args, *stage.quantised, threads);
}

bool run_linear(const ChainStage& stage, const Bases& bases, int threads) {
  LinearArgs args = stage.linear_args;
  args.x.data = bases.at(stage.x);
  args.out = bases.at(stage.out);
  args.bias = stage.biased ? bases.at(stage.bias) : nullptr;
  return linear(args, *stage.linear, threads, false) == Status::kOk;
}

void run_copy(const ChainStage& stage, const Bases& bases) {
  const char* from = bases.at(stage.x);
  char* to = bases.at(stage.out);
  // Strides of copies are bytes but for an input's own.
  const int64_t width = stage.out.column;
  const int64_t step = stage.out.row >= 0 ? stage.out.row : bases.row(stage.out) * width;
  for (int64_t r = 0; r < stage.rows; ++r, from += stage.x.row, to += step) {
    std::memcpy(to, from, static_cast<size_t>(stage.columns));
  }
}

}  // namespace

bool run_chain(const Chain& chain, const ChainInput* inputs, char* made, int threads) {
  const size_t bytes = static_cast<size_t>(chain.memory_bytes + chain.program_bytes);
  // Not a thread's own block: the products use that.
  void* memory = allocate_aligned(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (memory == nullptr) return false;
  const Bases bases = {inputs, made, static_cast<char*>(memory)};
  std::byte* of_programs = static_cast<std::byte*>(memory) + chain.memory_bytes;
  bool done = true;
  for (int i = 0; done && i < chain.stage_count; ++i) {
    const ChainStage& stage = chain.stages[i];
    switch (stage.kind) {
      case ChainKind::kQuantised:
        done = run_quantised(stage, bases, threads);
        break;
      case ChainKind::kLinear:
        done = run_linear(stage, bases, threads);
        break;
      case ChainKind::kScale: {
        const float found = scale_of(reinterpret_cast<const float*>(bases.at(stage.x)),
                                     stage.columns, stage.epsilon);
        std::memcpy(bases.at(stage.out), &found, sizeof(found));
        break;
      }
      case ChainKind::kProgram:
        run_program(stage, bases, of_programs);
        break;
      case ChainKind::kCopy:
        run_copy(stage, bases);
        break;
    }
  }
  free_aligned(memory);
  return done;
}

}  // namespace torchyard
