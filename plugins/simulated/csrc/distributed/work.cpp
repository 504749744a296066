#include "distributed/work.h"

#include "device/device.h"
#include "streams/launch.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>

namespace torchyard::simulated {

StreamWork::StreamWork(c10::intrusive_ptr<c10d::Work> host, std::vector<Received> received,
                       int64_t divisor)
    : host_(std::move(host)), received_(std::move(received)), divisor_(divisor) {}

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  host_->wait(timeout);
  publish();
  return true;
}

bool StreamWork::isCompleted() {
  if (!host_->isCompleted()) {
    return false;
  }
  if (!host_->isSuccess()) {
    return true;  // as every work of torch: wait() raises what went wrong
  }
  publish();
  for (const auto& [device, host] : received_) {
    synchronize_stream(current_stream(device.device().index()));
  }
  return true;
}

void StreamWork::publish() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (received_.empty()) {
    return;
  }
  const c10::Device device = received_.front().device.device();
  const c10::DeviceGuard guard(device);
  const c10::Stream stream = current_stream(device.index());
  if (published_) {
    published_->block(stream);
    return;
  }
  for (const auto& [to, from] : received_) {
    if (divisor_ != 1) {
      from.div_(divisor_);
    }
    launch(queue_of(stream), "collective", {{from, false}, {to, true}},
           [](const std::vector<at::Tensor>& host) { at::Tensor(host[1]).copy_(host[0]); });
  }
  published_.emplace(kType);
  published_->record(stream);
}

std::vector<at::Tensor> StreamWork::result() {
  std::vector<at::Tensor> tensors;
  for (const auto& each : received_) {
    tensors.push_back(each.device);
  }
  return tensors;
}

c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  wait(kNoTimeout);
  std::vector<c10::Device> devices;
  if (!received_.empty()) {
    devices.push_back(received_.front().device.device());
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), devices);
  future->markCompleted(c10::IValue(result()));
  return future;
}

}  // namespace torchyard::simulated
