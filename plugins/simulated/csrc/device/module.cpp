// Registration with torch, and the operators through which Python reaches the device's own state.
//
// Loading the library registers nothing but these operators. The device itself is registered by
// `initialize`, which can refuse; the library has no Python in it, so one build is for all.

#include "device/autocast.h"
#include "device/device.h"
#include "device/generator.h"
#include "device/guard.h"
#include "device/hooks.h"
#include "device/profiler.h"
#include "distributed/backend.h"
#include "memory/allocator.h"
#include "memory/host_allocator.h"
#include "memory/memory.h"
#include "ops/compiled.h"
#include "ops/convolution.h"
#include "ops/fallback.h"
#include "ops/recurrent.h"
#include "streams/engine.h"
#include "streams/graph.h"
#include "streams/stream.h"

#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <vector>

namespace torchyard::simulated {

namespace {

bool slot_taken() {
  return c10::impl::hasDeviceGuardImpl(kType) || at::isPrivateUse1HooksRegistered();
}

// Called once, after the device got its name.
void initialize() {
  TORCH_CHECK(!slot_taken(), "torch's PrivateUse1 slot is taken in this process");
  c10::SetAllocator(kType, device_allocator());
  at::setHostAllocator(kType, host_allocator());
  c10::impl::registerDeviceGuard(kType, device_guard());
  at::RegisterPrivateUse1HooksInterface(hooks());
  at::GraphImplRegistry()->Register(c10::DeviceTypeName(kType, /*lower_case=*/false), &make_graph);
  const auto key = std::make_optional(c10::DispatchKey::PrivateUse1);
  // Leaked: a library that is destroyed takes its kernels with it.
  auto* all = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  register_fallback(*all);
  auto* aten = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  register_memory_kernels(*aten);
  register_convolution(*aten);
  register_recurrent_cells(*aten);
  // torch resolves these bits of every operator's arguments by copying them, and copies to this
  // device end in _copy_from: without these it would resolve for ever. Its kernel knows the bits.
  for (const auto bit :
       {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor}) {
    auto* lazy = new torch::Library(torch::Library::IMPL, "aten", bit, __FILE__, __LINE__);
    lazy->impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
  register_autocast();
  register_profiler();
}

c10::DeviceIndex index_of(int64_t device) {
  TORCH_CHECK(device >= -1 && device < kDeviceCount, "device: expected an index from 0 to ",
              kDeviceCount - 1, ", got ", device);
  return resolve_index(static_cast<c10::DeviceIndex>(device));
}

std::tuple<std::vector<std::string>, std::vector<int64_t>> read_fallback_counts() {
  std::tuple<std::vector<std::string>, std::vector<int64_t>> result;
  for (const auto& [name, calls] : fallback_counts()) {
    std::get<0>(result).push_back(name);
    std::get<1>(result).push_back(calls);
  }
  return result;
}

void manual_seed(int64_t device, int64_t seed) {
  auto generator = default_generator(index_of(device));
  generator.set_current_seed(static_cast<uint64_t>(seed));
}

int64_t initial_seed(int64_t device) {
  return static_cast<int64_t>(default_generator(index_of(device)).current_seed());
}

at::Tensor get_rng_state(int64_t device) { return default_generator(index_of(device)).get_state(); }

void set_rng_state(int64_t device, const at::Tensor& state) {
  auto generator = default_generator(index_of(device));
  generator.set_state(state);
}

int64_t pending_work(int64_t device) {
  DeviceLock lock(device_mutex());
  int64_t pending = 0;
  for_each_queue(index_of(device), [&](Queue& queue) {
    pending += static_cast<int64_t>(queue.submitted() - queue.completed());
  });
  return pending;
}

void set_memory_limit(int64_t device, int64_t bytes) {
  TORCH_CHECK(bytes >= 0, "bytes: expected a size of at least 0, got ", bytes);
  set_capacity(index_of(device), static_cast<size_t>(bytes));
}

int64_t pinned_bytes() { return host_allocator()->get_stats().active_bytes.current; }

}  // namespace

TORCH_LIBRARY(torchyard_simulated, library) {
  library.def("slot_taken() -> bool", &slot_taken);
  library.def("initialize() -> ()", &initialize);
  library.def("settle_engine() -> ()", &settle_engine);
  library.def("device_count() -> int", [] { return int64_t{kDeviceCount}; });
  library.def("fallback_counts() -> (str[], int[])", &read_fallback_counts);
  library.def("reset_fallback_counts() -> ()", &reset_fallback_counts);
  library.def(
      "add_backend(__torch__.torch.classes.c10d.ProcessGroup host, "
      "__torch__.torch.classes.c10d.ProcessGroup group) -> ()",
      &add_backend);
  library.def("compiled_launches() -> int", &compiled_launches);
  library.def(
      "launch_compiled(str name, int entry, Tensor[] tensors, int[] written, int[] scalars) -> ()",
      [](const std::string& name, int64_t entry, const std::vector<at::Tensor>& tensors,
         const std::vector<int64_t>& written, const std::vector<int64_t>& scalars) {
        launch_compiled(name, entry, tensors, written, scalars);
      });
  library.def("manual_seed(int device, int seed) -> ()", &manual_seed);
  library.def("initial_seed(int device) -> int", &initial_seed);
  library.def("get_rng_state(int device) -> Tensor", &get_rng_state);
  library.def("set_rng_state(int device, Tensor state) -> ()", &set_rng_state);
  library.def("pending_work(int device) -> int", &pending_work);
  library.def("set_memory_limit(int device, int bytes) -> ()", &set_memory_limit);
  library.def("pinned_bytes() -> int", &pinned_bytes);
}

}  // namespace torchyard::simulated
