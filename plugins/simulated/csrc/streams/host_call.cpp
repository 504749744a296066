#include "streams/host_call.h"

#include "device/device.h"
#include "device/generator.h"
#include "memory/host_view.h"
#include "memory/memory.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace torchyard::simulated {

namespace {

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool takes_generator(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
}

// Visit every tensor of a stack, in order.
template <typename Visit>
void for_each_tensor(const torch::jit::Stack& stack, Visit visit) {
  for (const auto& value : stack) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        visit(tensor);
      }
    }
  }
}

}  // namespace

HostCall::HostCall(const c10::OperatorHandle& op, c10::Device device, Access access,
                   Capture* capture)
    : op_(op), device_(device), access_(access), capture_(capture) {}

torch::jit::Stack HostCall::translate(const torch::jit::Stack& arguments) {
  const auto count = [&](const at::Tensor& tensor) {
    if (on_device(tensor)) {
      ++uses_[tensor.storage().unsafeGetStorageImpl()];
    }
  };
  for_each_tensor(arguments, count);
  for (const auto& value : arguments) {
    if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        count(tensor.value_or(at::Tensor()));
      }
    }
  }
  const auto& formals = op_.schema().arguments();
  torch::jit::Stack host(arguments.size());
  // Written arguments first: what else reads their memory then sees the same shadow.
  for (const bool written : {true, false}) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (is_written(formals[i]) == written) {
        host[i] = value_to_host(arguments[i], formals[i]);
      }
    }
  }
  return host;
}

c10::IValue HostCall::value_to_host(const c10::IValue& value, const c10::Argument& argument) {
  const bool written = is_written(argument);
  if (value.isTensor()) {
    return to_host(value.toTensor(), written);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> host;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      host.push_back(to_host(tensor, written));
    }
    return host;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> host;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      host.push_back(tensor.has_value() ? std::make_optional(to_host(*tensor, written))
                                        : std::nullopt);
    }
    return host;
  }
  if (value.isDevice() && value.toDevice().type() == kType) {
    return c10::Device(c10::kCPU);
  }
  if (value.isGenerator()) {
    return host_generator(value.toGenerator());
  }
  if (value.isNone() && takes_generator(argument)) {
    return host_generator(default_generator(device_.index()));
  }
  return value;
}

at::Tensor HostCall::to_host(const at::Tensor& tensor, bool written) {
  if (!on_device(tensor)) {
    return tensor;
  }
  const auto known = by_device_.find(tensor.unsafeGetTensorImpl());
  if (known != by_device_.end()) {
    arguments_[known->second].written |= written;
    return arguments_[known->second].host;
  }
  const auto* const device_storage = tensor.storage().unsafeGetStorageImpl();
  writes_ = writes_ || written;
  if (capture_ != nullptr) {
    capture_->hold(tensor.storage());
  }
  at::Tensor host;
  int64_t origin = 0;
  // A tensor that shares its storage with another argument is written in place: a copy would hide
  // the write from the other.
  if (access_ == Access::Private && written && uses_[device_storage] == 1) {
    host = private_copy(tensor, origin);
  } else {
    auto found = aliases_.find(device_storage);
    if (found == aliases_.end()) {
      auto alias = access_ == Access::Traced ? capture_->traced_storage(tensor.storage(), written)
                                             : alias_storage(tensor.storage());
      found = aliases_.emplace(device_storage, std::move(alias)).first;
    }
    host = host_view(tensor, found->second);
  }
  const auto* const host_storage = host.storage().unsafeGetStorageImpl();
  origins_.try_emplace(
      host_storage,
      Origin{tensor.storage(), origin * static_cast<int64_t>(tensor.dtype().itemsize())});
  by_device_.emplace(tensor.unsafeGetTensorImpl(), arguments_.size());
  arguments_.push_back({tensor, host, written, host.storage().nbytes()});
  return host;
}

// Copies only the bytes between the tensor's first and last element.
at::Tensor HostCall::private_copy(const at::Tensor& tensor, int64_t& origin) const {
  origin = tensor.storage_offset();
  const size_t item = tensor.dtype().itemsize();
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), item, 0);
  at::Storage storage(at::Storage::use_byte_size_t(), bytes,
                      c10::GetCPUAllocator()->allocate(bytes), c10::GetCPUAllocator(),
                      /*resizable=*/true);
  if (bytes > 0) {
    std::memcpy(
        storage.mutable_data(),
        static_cast<const char*>(tensor.storage().data()) + static_cast<size_t>(origin) * item,
        bytes);
  }
  return host_view(tensor, storage, origin);
}

void HostCall::run(torch::jit::Stack& stack) const {
  constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);
  bool draws = op_.hasTag(at::Tag::nondeterministic_seeded);
  for (const auto& value : stack) {
    draws = draws && !value.isGenerator();
  }
  if (draws) {
    const BorrowedSequence borrowed(device_.index());
    op_.redispatchBoxed(kHost, &stack);
  } else {
    op_.redispatchBoxed(kHost, &stack);
  }
}

torch::jit::Stack HostCall::results(const torch::jit::Stack& host_results,
                                    std::vector<Work>& publish) {
  settle_written(publish);
  torch::jit::Stack device;
  for (const auto& value : host_results) {
    if (value.isTensor()) {
      device.emplace_back(to_device(value.toTensor(), publish));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(to_device(tensor, publish));
      }
      device.emplace_back(std::move(list));
    } else {
      device.push_back(value);
    }
  }
  return device;
}

// Bring geometry and contents of written arguments back to the device tensors.
void HostCall::settle_written(std::vector<Work>& publish) {
  for (auto& argument : arguments_) {
    made_.emplace(argument.host.unsafeGetTensorImpl(), argument.device);
    if (!argument.written) {
      continue;
    }
    const auto& host = argument.host;
    auto& origin = origins_.at(host.storage().unsafeGetStorageImpl());
    const bool resized = host.storage().nbytes() != argument.bytes;
    const auto offset =
        host.storage_offset() + origin.offset_bytes / static_cast<int64_t>(host.dtype().itemsize());
    if (resized || host.sizes() != argument.device.sizes() ||
        host.strides() != argument.device.strides()) {
      resize_tensor(argument.device, host.sizes(), host.strides(), offset);
      if (access_ == Access::Private || resized) {
        origin.storage = argument.device.storage();
      }
    }
    if (host.numel() == 0) {
      continue;
    }
    const bool copied = host.storage().data() != argument.device.storage().data();
    if (access_ == Access::Private && copied) {
      publish.push_back([to = host_view(argument.device, alias_storage(argument.device.storage())),
                         host] { to.copy_(host); });
    } else if (access_ == Access::Traced && resized) {
      host_view(argument.device, alias_storage(argument.device.storage())).copy_(host);
    }
  }
}

at::Tensor HostCall::to_device(const at::Tensor& host, std::vector<Work>& publish) {
  if (!host.defined()) {
    return host;
  }
  TORCH_CHECK(host.layout() == c10::Layout::Strided, op_.schema().operator_name(),
              ": the simulated device holds strided tensors only, got a ", host.layout(),
              " result");
  const auto known = made_.find(host.unsafeGetTensorImpl());
  if (known != made_.end()) {
    return known->second;
  }
  const auto* const host_storage = host.storage().unsafeGetStorageImpl();
  auto origin = origins_.find(host_storage);
  if (origin == origins_.end()) {
    const size_t bytes = host.storage().nbytes();
    const auto buffer =
        host._is_zerotensor()
            ? zeros_without_memory({static_cast<int64_t>(bytes)}, at::kByte, device_)
            : new_tensor({static_cast<int64_t>(bytes)}, {1}, at::kByte, device_);
    if (!host._is_zerotensor()) {
      void* const to = buffer.storage().mutable_data();
      fresh_.push_back({to, bytes});
      if (bytes > 0) {
        publish.push_back(
            [to, bytes, from = host.storage()] { std::memcpy(to, from.data(), bytes); });
      }
    }
    origin = origins_.emplace(host_storage, Origin{buffer.storage(), 0}).first;
  }
  const auto item = static_cast<int64_t>(host.dtype().itemsize());
  auto device = device_view(host, origin->second.storage, origin->second.offset_bytes / item);
  made_.emplace(host.unsafeGetTensorImpl(), device);
  return device;
}

void HostCall::rewrite(const torch::jit::Stack& host_results,
                       const std::vector<Fresh>& memory) const {
  std::unordered_map<const c10::StorageImpl*, bool> seen;
  size_t next = 0;
  for_each_tensor(host_results, [&](const at::Tensor& host) {
    if (!host.defined() || host._is_zerotensor() ||
        origins_.count(host.storage().unsafeGetStorageImpl()) != 0 ||
        !seen.emplace(host.storage().unsafeGetStorageImpl(), true).second) {
      return;
    }
    TORCH_CHECK(next < memory.size() && memory[next].bytes == host.storage().nbytes(),
                op_.schema().operator_name(),
                ": a replay gave results of another size than the capture");
    if (memory[next].bytes > 0) {
      std::memcpy(memory[next].data, host.storage().data(), memory[next].bytes);
    }
    ++next;
  });
}

}  // namespace torchyard::simulated
