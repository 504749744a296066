#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

// Golden calls: a text file that gives each tensor's type, shape and offset, and one file of
// their bytes, little-endian and without gaps.
namespace golden {

// An output and how far from it the program's may be. Floating outputs are given in float64 where
// the model could be run so; what is not floating has to be equal, and its bound is 0.
struct Output {
  std::string name;
  at::ScalarType dtype;
  double bound;
  at::Tensor exact;
};

struct Call {
  std::string sizes;
  std::vector<at::Tensor> inputs;
  std::vector<Output> outputs;
};

// Reads `calls.txt` and `tensors.bin` in a folder; throws std::runtime_error for what is not as the
// template wrote it.
std::vector<Call> read(const std::string& folder);

}  // namespace golden
