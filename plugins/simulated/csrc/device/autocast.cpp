#include "device/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace torchyard::simulated {

namespace {

using namespace at::autocast;  // torch's macros below name its policies without a namespace

void register_casts(torch::Library& m) {
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
#undef LOWER_PRECISION
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FLOAT32)
#undef FLOAT32
#define FLOAT32_UNLESS_GIVEN(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_UNLESS_GIVEN)
#undef FLOAT32_UNLESS_GIVEN
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(WIDEST)
#undef WIDEST
}

}  // namespace

void register_autocast() {
  const auto key = std::make_optional(c10::DispatchKey::AutocastPrivateUse1);
  // Leaked: a library that is destroyed takes its kernels with it.
  auto* all = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  all->fallback(torch::CppFunction::makeFallthrough());
  auto* aten = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  register_casts(*aten);
}

}  // namespace torchyard::simulated
