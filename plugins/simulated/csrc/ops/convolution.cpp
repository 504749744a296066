#include "ops/convolution.h"

#include "ops/fallback.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace torchyard::simulated {

namespace {

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

void forward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto convolution = find("aten::convolution");
  run_on_host(convolution, stack);
}

// The plain backward takes one argument more, the sizes of the bias, after the weight.
void backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto convolution_backward = find("aten::convolution_backward");
  constexpr size_t kArguments = 10;
  constexpr size_t kGradOutput = 0;
  constexpr size_t kBiasSizes = 3;
  auto arguments = torch::jit::pop(*stack, kArguments);
  const at::Tensor grad_output = arguments[kGradOutput].toTensor();
  arguments.insert(arguments.begin() + kBiasSizes,
                   c10::IValue(std::vector<int64_t>{grad_output.size(1)}));
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  run_on_host(convolution_backward, stack);
}

}  // namespace

void register_convolution(torch::Library& aten) {
  aten.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&forward>());
  aten.impl("convolution_backward_overrideable",
            torch::CppFunction::makeFromBoxedFunction<&backward>());
}

}  // namespace torchyard::simulated
