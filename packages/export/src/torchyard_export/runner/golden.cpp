#include "golden.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace golden {
namespace {

const std::map<std::string, at::ScalarType> kDtypes = {
    {"bool", at::kBool},     {"uint8", at::kByte},        {"int8", at::kChar},
    {"int16", at::kShort},   {"int32", at::kInt},         {"int64", at::kLong},
    {"float16", at::kHalf},  {"bfloat16", at::kBFloat16}, {"float32", at::kFloat},
    {"float64", at::kDouble}};

at::ScalarType dtype_of(const std::string& name) {
  const auto found = kDtypes.find(name);
  if (found == kDtypes.end()) throw std::runtime_error("calls.txt: unknown dtype " + name);
  return found->second;
}

// Reads "<dtype> <offset> <bytes> <rank> <sizes...>" and copies the tensor out of the bytes.
at::Tensor tensor_of(std::istream& words, const std::vector<char>& bytes) {
  std::string dtype;
  std::uint64_t offset = 0, length = 0, rank = 0;
  if (!(words >> dtype >> offset >> length >> rank) || rank > 64) {
    throw std::runtime_error("calls.txt: expected a dtype, an offset, a length and a rank");
  }
  std::vector<std::int64_t> sizes(rank);
  for (auto& size : sizes) {
    if (!(words >> size) || size < 0) throw std::runtime_error("calls.txt: expected a size");
  }
  auto tensor = at::empty(sizes, at::TensorOptions().dtype(dtype_of(dtype)));
  if (length != tensor.nbytes() || offset > bytes.size() || length > bytes.size() - offset) {
    throw std::runtime_error("tensors.bin: expected " + std::to_string(tensor.nbytes()) +
                             " bytes at " + std::to_string(offset));
  }
  if (length) std::memcpy(tensor.mutable_data_ptr(), bytes.data() + offset, length);
  return tensor;
}

}  // namespace

std::vector<Call> read(const std::string& folder) {
  std::ifstream lines(folder + "/calls.txt");
  std::ifstream raw(folder + "/tensors.bin", std::ios::binary);
  if (!lines || !raw) throw std::runtime_error(folder + ": expected calls.txt and tensors.bin");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(raw), {}};
  std::vector<Call> calls;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "call") {
      std::getline(words >> std::ws, line);
      calls.push_back({line, {}, {}});
    } else if (kind == "in" && !calls.empty()) {
      calls.back().inputs.push_back(tensor_of(words, bytes));
    } else if (kind == "out" && !calls.empty()) {
      Output output;
      std::string dtype;
      if (!(words >> dtype >> output.bound)) {
        throw std::runtime_error("calls.txt: expected a dtype and a bound");
      }
      output.dtype = dtype_of(dtype);
      output.exact = tensor_of(words, bytes);
      std::getline(words >> std::ws, output.name);
      calls.back().outputs.push_back(output);
    } else {
      throw std::runtime_error("calls.txt: expected call, in or out, got " + kind);
    }
  }
  if (calls.empty()) throw std::runtime_error("calls.txt: expected at least one call");
  return calls;
}

}  // namespace golden
