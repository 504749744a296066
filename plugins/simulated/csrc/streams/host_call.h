// One call of an operator, translated to the host and its results translated back.
#pragma once

#include "streams/capture.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <unordered_map>
#include <vector>

namespace torchyard::simulated {

// How the call reaches device memory.
enum class Access {
  Direct,   // the memory itself
  Private,  // written tensors are copied, and published in stream order afterwards
  Traced,   // the shadow state of a capture
};

class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, c10::Device device, Access access, Capture* capture);

  // Host counterparts of the operator's arguments.
  torch::jit::Stack translate(const torch::jit::Stack& arguments);

  void run(torch::jit::Stack& stack) const;

  // Device counterparts of the results. Allocates what is new; `publish` receives the copies that
  // still have to reach device memory.
  torch::jit::Stack results(const torch::jit::Stack& host_results, std::vector<Work>& publish);

  // Device memory and size of the results that `results` allocated, in order.
  struct Fresh {
    void* data;
    size_t bytes;
  };
  const std::vector<Fresh>& fresh() const { return fresh_; }

  // For a replay: copy new results of a repeated call into the memory of the first.
  void rewrite(const torch::jit::Stack& host_results, const std::vector<Fresh>& memory) const;

  bool writes() const { return writes_; }

 private:
  struct Argument {
    at::Tensor device;
    at::Tensor host;
    bool written = false;
    size_t bytes = 0;  // of the host storage, to notice a resize
  };
  struct Origin {
    at::Storage storage;       // of the device
    int64_t offset_bytes = 0;  // of the host storage's first byte in it
  };

  at::Tensor to_host(const at::Tensor& tensor, bool written);
  c10::IValue value_to_host(const c10::IValue& value, const c10::Argument& argument);
  at::Tensor private_copy(const at::Tensor& tensor, int64_t& origin) const;
  void settle_written(std::vector<Work>& publish);
  at::Tensor to_device(const at::Tensor& host, std::vector<Work>& publish);

  c10::OperatorHandle op_;  // a copy: a recorded call outlives the one it was made from
  c10::Device device_;
  Access access_;
  Capture* capture_;
  bool writes_ = false;
  std::unordered_map<const c10::StorageImpl*, int> uses_;
  std::unordered_map<const c10::TensorImpl*, size_t> by_device_;
  std::unordered_map<const c10::StorageImpl*, at::Storage> aliases_;
  std::unordered_map<const c10::StorageImpl*, Origin> origins_;
  std::vector<Argument> arguments_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> made_;
  std::vector<Fresh> fresh_;
};

}  // namespace torchyard::simulated
