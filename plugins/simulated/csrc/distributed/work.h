// What a collective of this device returns: it ends on the host, and its results reach the device
// when a stream waits for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <mutex>
#include <optional>
#include <vector>

namespace torchyard::simulated {

// A device tensor and the host memory in which a collective leaves its values.
struct Received {
  at::Tensor device;
  at::Tensor host;
};

class StreamWork final : public c10d::Work {
 public:
  // `divisor`: what to divide the received values by.
  StreamWork(c10::intrusive_ptr<c10d::Work> host, std::vector<Received> received, int64_t divisor);

  // Wait on the host until the peers are done; then the results are work of the current stream.
  // A later wait makes its own stream wait for that work. Without any, nothing arrives.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  // True once the results are in the device's memory.
  bool isCompleted() override;
  bool isSuccess() const override { return host_->isSuccess(); }
  std::exception_ptr exception() const override { return host_->exception(); }
  int sourceRank() const override { return host_->sourceRank(); }
  std::vector<at::Tensor> result() override;
  // Waits as wait() does, so that it is complete when it is returned.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void publish();

  c10::intrusive_ptr<c10d::Work> host_;
  std::vector<Received> received_;
  int64_t divisor_;
  std::mutex mutex_;
  std::optional<c10::Event> published_;
};

}  // namespace torchyard::simulated
