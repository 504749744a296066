// A program that changes scores between the product of queries and keys and the softmax.
//
// Its rectangles are queries and keys of one head: of its values, uniform ones depend on the head,
// rows on the query, columns on the key and tiles on the pair.
#pragma once

#include <cstddef>
#include <cstdint>

#include "programs/step.h"

namespace torchyard {

// The operand that is the score itself, of tile shape.
constexpr int64_t kRawScore = -1;

// An index out of range, of a visible pair; any one of them where there are several.
struct ScoreFailure {
  int64_t step;  // -1: none
  int64_t value;
};

struct ScoreProgram {
  const ProgramStep* steps;
  int64_t counts[kValueShapes];  // steps per shape
  int64_t slots[kValueShapes];
  int64_t result;  // operand; float32
  ScoreFailure* failure;
};

// Where a program reads an element whose gradient is wanted: each visible pair adds
// ds * weight to the element that it read, with ds the gradient of the pair's modified score.
enum class SiteForm : int64_t {
  kOne,      // all keys of a row read one element: `offset` is int64, per head or per query
  kAffine,   // the element at offset + extra * key; `offset` likewise
  kScatter,  // the elements at `offset`: int32 per key or pair; int64 where extra is 1
};

struct ScoreSite {
  int64_t tensor;
  SiteForm form;
  int64_t offset;  // operand; elements of the gradient, which is contiguous
  int64_t extra;
  int64_t weight;  // operand, float32: d modified / d element
};
constexpr int kScoreSiteWords = sizeof(ScoreSite) / sizeof(int64_t);

// The gradient of one captured tensor, float32. Where it is shared, all threads add to it and it
// holds zeros at first; elsewhere it is written from float64 sums that a few threads have each.
struct CapturedGradient {
  int64_t address;
  int64_t elements;
  int64_t shared;
};
constexpr int kCapturedGradientWords = sizeof(CapturedGradient) / sizeof(int64_t);

// What a backward needs beside the program.
struct ScoreGradient {
  int64_t slope;  // operand, float32: d modified / d score
  const ScoreSite* sites;
  int64_t site_count;
  const CapturedGradient* tensors;
  int64_t tensor_count;
  // Of shared tensors: pairs of different batches (kv heads, keys) never read the same element.
  bool apart_by_batch;
  bool apart_by_head;
  bool apart_by_key;
};

}  // namespace torchyard
