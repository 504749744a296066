#include "ops/fallback.h"

#include "device/device.h"
#include "memory/host_view.h"
#include "streams/engine.h"
#include "streams/host_call.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>

#include <mutex>
#include <set>

namespace torchyard::simulated {

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
};

Counts& counts() {
  static auto* const instance = new Counts();
  return *instance;
}

std::string name_of(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void count(const std::string& name) {
  std::lock_guard<std::mutex> lock(counts().mutex);
  ++counts().calls[name];
}

// Operators whose index tensors may live on the CPU, as on every device of torch.
bool takes_host_indices(const std::string& name) {
  static const std::set<std::string> names{"aten::index.Tensor",         "aten::index.Tensor_out",
                                           "aten::_unsafe_index.Tensor", "aten::index_put_",
                                           "aten::_index_put_impl_",     "aten::_unsafe_index_put",
                                           "aten::index_put.out"};
  return names.count(name) != 0;
}

// The one device of a call. A CPU tensor may join only as a number or as an index.
class CommonDevice {
 public:
  explicit CommonDevice(const std::string& name) : name_(name) {}

  void record(const c10::IValue& value) {
    if (value.isTensor()) {
      record(value.toTensor(), false);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        record(tensor, false);
      }
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        record(tensor.value_or(at::Tensor()), true);
      }
    } else if (value.isDevice() && !device_ && value.toDevice().type() == kType) {
      asked_ = value.toDevice();
    }
  }

  c10::Device get() const {
    if (device_) {
      return *device_;
    }
    return device_of(resolve_index(asked_ ? asked_->index() : -1));
  }

  void check() const {
    TORCH_CHECK(!device_ || !stranger_,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                *device_, " and ", *stranger_, ", in ", name_);
  }

 private:
  void record(const at::Tensor& tensor, bool index) {
    if (!tensor.defined()) {
      return;
    }
    const c10::Device device = tensor.device();
    if (device.type() == kType) {
      if (device_ && *device_ != device) {
        stranger_ = device;
      } else {
        device_ = device;
      }
    } else if (tensor.dim() > 0 && !(index && takes_host_indices(name_))) {
      stranger_ = device;
    }
  }

  const std::string& name_;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> asked_;
  std::optional<c10::Device> stranger_;
};

void call_now(const c10::OperatorHandle& op, c10::Device device, Queue& queue,
              torch::jit::Stack* stack, const torch::jit::Stack& arguments) {
  {
    DeviceLock lock(device_mutex());
    queue.drain();
  }
  HostCall call(op, device, Access::Private, nullptr);
  auto host = call.translate(arguments);
  call.run(host);
  std::vector<Work> publish;
  auto results = call.results(host, publish);
  {
    DeviceLock lock(device_mutex());
    for (auto& work : publish) {
      queue.submit([work = std::move(work)] {
        PlainDispatch plain;
        work();
      });
    }
  }
  torch::jit::drop(*stack, arguments.size());
  stack->insert(stack->end(), results.begin(), results.end());
}

// Run the call on the capture's shadow state and record it for the memory it really means. The
// lock is never held while a host kernel runs: the kernel may be Python, and need the GIL.
void call_captured(const c10::OperatorHandle& op, const std::string& name, c10::Device device,
                   Queue& queue, torch::jit::Stack* stack, const torch::jit::Stack& arguments) {
  const auto capture = queue.capture;
  HostCall traced(op, device, Access::Traced, capture.get());
  torch::jit::Stack host;
  {
    DeviceLock lock(device_mutex());
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) {
      capture->refuse(name + ", whose result the host has to read,");
    }
    host = traced.translate(arguments);
  }
  traced.run(host);
  std::vector<Work> publish;
  auto results = traced.results(host, publish);
  for (const auto& work : publish) {
    work();
  }
  torch::jit::drop(*stack, arguments.size());
  stack->insert(stack->end(), results.begin(), results.end());
  if (traced.fresh().empty() && !traced.writes()) {
    return;  // a view: nothing happens at a replay
  }
  auto replayed = std::make_shared<HostCall>(op, device, Access::Direct, nullptr);
  auto prepared = replayed->translate(arguments);
  DeviceLock lock(device_mutex());
  capture->add(queue, {name, [replayed, prepared, memory = traced.fresh()] {
                         auto again = prepared;
                         replayed->run(again);
                         replayed->rewrite(again, memory);
                       }});
}

}  // namespace

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note_thread();
  const std::string name = name_of(op);
  count(name);
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  CommonDevice common(name);
  for (const auto& value : arguments) {
    common.record(value);
  }
  common.check();
  const c10::DeviceGuard guard(common.get());
  Queue& queue = current_queue(common.get().index());
  if (queue.capture) {
    call_captured(op, name, common.get(), queue, stack, arguments);
  } else {
    call_now(op, common.get(), queue, stack, arguments);
  }
}

void register_fallback(torch::Library& all) {
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

std::map<std::string, int64_t> fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  return counts().calls;
}

void reset_fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  counts().calls.clear();
}

}  // namespace torchyard::simulated
