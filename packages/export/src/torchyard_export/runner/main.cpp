// Runs an exported program on its golden calls, without Python.
//
// usage: runner [FOLDER]: the folder with model.pt2, calls.txt and tensors.bin, or the current one.
// Ends in 0 where each output is within its bound, in 1 where one is not, in 2 where it cannot run.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "golden.h"

namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();

// "AVX512_VNNI" and "avx512_vnni" both become "avx512vnni".
std::string plain(std::string name) {
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  for (auto& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

// Code for another processor would end the process without a word.
void check_processor(const std::string& package) {
  const auto said =
      torch::inductor::AOTIModelPackageLoader::load_metadata_from_package(package, "model");
  const auto wanted = said.find("AOTI_CPU_ISA");
  if (wanted == said.end()) return;
  const auto has = at::cpu::get_cpu_capabilities();
  std::istringstream words(wanted->second);
  for (std::string word; words >> word;) {
    if (word == "NEON") continue;
    const bool found = std::any_of(has.begin(), has.end(), [&](const auto& known) {
      return plain(known.first).starts_with(plain(word)) && known.second.isBool() &&
             known.second.toBool();
    });
    if (!found) throw std::runtime_error("expected a processor with " + word);
  }
}

// The largest difference from what is right; infinite where the two cannot be compared.
double distance(const golden::Output& output, const at::Tensor& got) {
  if (got.scalar_type() != output.dtype || got.sizes() != output.exact.sizes()) return kFar;
  if (!at::isFloatingType(output.dtype)) return at::equal(got, output.exact) ? 0.0 : kFar;
  const auto exact = output.exact.to(at::kDouble), wide = got.to(at::kDouble);
  const auto finite = at::isfinite(exact), nothing = at::zeros_like(exact);
  const auto special = [&](const at::Tensor& value) {
    return at::where(finite, nothing, value).nan_to_num(1.5);
  };
  if (!at::equal(special(exact), special(wide)) || !at::isfinite(wide).equal(finite)) return kFar;
  const auto apart = at::where(finite, wide - exact, nothing).abs();
  return apart.numel() ? apart.max().item<double>() : 0.0;
}

// How each output did over all calls.
struct Summary {
  double difference = 0.0;
  double bound = 0.0;
  double ratio = -1.0;
  std::string sizes;
};

int run(const std::string& folder) {
  const at::NoGradGuard no_grad;
  const auto calls = golden::read(folder);
  const auto package = folder + "/model.pt2";
  check_processor(package);
  torch::inductor::AOTIModelPackageLoader loader(package);
  std::vector<Summary> summaries(calls.front().outputs.size());
  for (const auto& call : calls) {
    const auto outputs = loader.run(call.inputs);
    if (outputs.size() != summaries.size() || call.outputs.size() != summaries.size()) {
      throw std::runtime_error("expected " + std::to_string(summaries.size()) + " outputs, got " +
                               std::to_string(outputs.size()));
    }
    for (std::size_t index = 0; index < outputs.size(); ++index) {
      const auto& wanted = call.outputs[index];
      const double apart = distance(wanted, outputs[index]);
      const double ratio = apart == 0.0 ? 0.0 : apart / wanted.bound;
      if (ratio > summaries[index].ratio) {
        summaries[index] = {apart, wanted.bound, ratio, call.sizes};
      }
    }
  }
  bool passed = true;
  for (std::size_t index = 0; index < summaries.size(); ++index) {
    const auto& worst = summaries[index];
    const bool fine = worst.ratio <= 1.0;
    passed = passed && fine;
    std::printf("%s: largest difference %.3g, allowed %.3g, at %s: %s\n",
                calls.front().outputs[index].name.c_str(), worst.difference, worst.bound,
                worst.sizes.c_str(), fine ? "passed" : "WRONG");
  }
  std::printf("%zu calls: %s\n", calls.size(), passed ? "passed" : "WRONG");
  return passed ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count > 1 ? words[1] : ".");
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "cannot run: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cannot run: %s\n", error.what());
  }
  return 2;
}
