#include "distributed/backend.h"

#include "device/device.h"
#include "distributed/work.h"
#include "streams/stream.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace torchyard::simulated {

namespace {

using c10d::Work;
using Result = c10::intrusive_ptr<Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<std::vector<at::Tensor>>;

// One host tensor, or list of them, for each of the device's.
template <typename Item, typename Function>
std::vector<Item> each(const std::vector<Item>& items, Function host) {
  std::vector<Item> hosts;
  hosts.reserve(items.size());
  for (const Item& item : items) {
    hosts.push_back(host(item));
  }
  return hosts;
}

// The host's side of one operation's tensors.
class Staging {
 public:
  explicit Staging(const char* operation) : operation_(operation) {}

  // A copy of what the tensor holds after the earlier work of its device's current stream.
  at::Tensor sent(const at::Tensor& tensor) const {
    auto host = room(tensor);
    host.copy_(tensor);
    return host;
  }

  // Memory in which the operation leaves what the tensor receives.
  at::Tensor received(const at::Tensor& tensor) {
    auto host = room(tensor);
    received_.push_back({tensor, host});
    return host;
  }

  at::Tensor both(const at::Tensor& tensor) {
    auto host = sent(tensor);
    received_.push_back({tensor, host});
    return host;
  }

  Tensors sent(const Tensors& tensors) const {
    return each(tensors, [this](const at::Tensor& tensor) { return sent(tensor); });
  }

  Lists sent(const Lists& lists) const {
    return each(lists, [this](const Tensors& tensors) { return sent(tensors); });
  }

  Tensors received(const Tensors& tensors) {
    return each(tensors, [this](const at::Tensor& tensor) { return received(tensor); });
  }

  Lists received(const Lists& lists) {
    return each(lists, [this](const Tensors& tensors) { return received(tensors); });
  }

  Tensors both(const Tensors& tensors) {
    return each(tensors, [this](const at::Tensor& tensor) { return both(tensor); });
  }

  Result finish(Result host, int64_t divisor = 1) {
    return c10::make_intrusive<StreamWork>(std::move(host), std::move(received_), divisor);
  }

 private:
  at::Tensor room(const at::Tensor& tensor) const {
    TORCH_CHECK(tensor.device().type() == kType, operation_,
                ": tensors: expected tensors of the simulated device, got one on ", tensor.device(),
                "; for both, use init_process_group(\"cpu:gloo,simulated:simulated\")");
    TORCH_CHECK(tensor.layout() == c10::Layout::Strided, operation_,
                ": tensors: expected strided tensors, got a ", tensor.layout(), " one");
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  }

  const c10::NoGradGuard no_grad_;
  const char* operation_;
  std::vector<Received> received_;
};

// gloo has no average: its sum is divided afterwards.
template <typename Options>
std::pair<Options, int64_t> without_average(const Options& options, int64_t size) {
  if (options.reduceOp != c10d::ReduceOp::AVG) {
    return {options, 1};
  }
  Options summed = options;
  summed.reduceOp = c10d::ReduceOp::SUM;
  return {summed, size};
}

class HostBackend final : public c10d::Backend {
 public:
  HostBackend(c10::intrusive_ptr<c10d::Backend> host, int rank, int size)
      : c10d::Backend(rank, size), host_(std::move(host)) {}

  const std::string getBackendName() const override { return "simulated"; }

  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }

  Result broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Staging staging("broadcast");
    auto host = staging.both(tensors);
    return staging.finish(host_->broadcast(host, options));
  }

  Result allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Staging staging("all_reduce");
    auto host = staging.both(tensors);
    const auto [plain, divisor] = without_average(options, size_);
    return staging.finish(host_->allreduce(host, plain), divisor);
  }

  Result allreduce_coalesced(Tensors& tensors,
                             const c10d::AllreduceCoalescedOptions& options) override {
    Staging staging("all_reduce");
    auto host = staging.both(tensors);
    const auto [plain, divisor] = without_average(options, size_);
    return staging.finish(host_->allreduce_coalesced(host, plain), divisor);
  }

  Result reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    Staging staging("reduce");
    // Only the root's tensors change; the others' host memory is the host backend's to use.
    const bool is_root = options.rootRank == rank_;
    auto host = is_root ? staging.both(tensors) : staging.sent(tensors);
    const auto [plain, divisor] = without_average(options, size_);
    return staging.finish(host_->reduce(host, plain), divisor);
  }

  Result allgather(Lists& outputs, Tensors& inputs,
                   const c10d::AllgatherOptions& options) override {
    Staging staging("all_gather");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    return staging.finish(host_->allgather(to, from, options));
  }

  Result _allgather_base(at::Tensor& output, at::Tensor& input,
                         const c10d::AllgatherOptions& options) override {
    Staging staging("all_gather");
    auto from = staging.sent(input);
    auto to = staging.received(output);
    return staging.finish(host_->_allgather_base(to, from, options));
  }

  Result allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) override {
    Staging staging("all_gather");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    return staging.finish(host_->allgather_into_tensor_coalesced(to, from, options));
  }

  Result gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    Staging staging("gather");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    return staging.finish(host_->gather(to, from, options));
  }

  Result scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override {
    Staging staging("scatter");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    return staging.finish(host_->scatter(to, from, options));
  }

  Result reduce_scatter(Tensors& outputs, Lists& inputs,
                        const c10d::ReduceScatterOptions& options) override {
    Staging staging("reduce_scatter");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    const auto [plain, divisor] = without_average(options, size_);
    return staging.finish(host_->reduce_scatter(to, from, plain), divisor);
  }

  Result _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& options) override {
    Staging staging("reduce_scatter");
    auto from = staging.sent(input);
    auto to = staging.received(output);
    const auto [plain, divisor] = without_average(options, size_);
    return staging.finish(host_->_reduce_scatter_base(to, from, plain), divisor);
  }

  Result reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& options) override {
    Staging staging("reduce_scatter");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    const auto [plain, divisor] = without_average(options, size_);
    return staging.finish(host_->reduce_scatter_tensor_coalesced(to, from, plain), divisor);
  }

  Result alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                       std::vector<int64_t>& input_sizes,
                       const c10d::AllToAllOptions& options) override {
    Staging staging("all_to_all");
    auto from = staging.sent(input);
    auto to = staging.received(output);
    return staging.finish(host_->alltoall_base(to, from, output_sizes, input_sizes, options));
  }

  Result alltoall(Tensors& outputs, Tensors& inputs,
                  const c10d::AllToAllOptions& options) override {
    Staging staging("all_to_all");
    auto from = staging.sent(inputs);
    auto to = staging.received(outputs);
    return staging.finish(host_->alltoall(to, from, options));
  }

  Result send(Tensors& tensors, int to_rank, int tag) override {
    Staging staging("send");
    auto host = staging.sent(tensors);
    return staging.finish(host_->send(host, to_rank, tag));
  }

  Result recv(Tensors& tensors, int from_rank, int tag) override {
    Staging staging("recv");
    auto host = staging.received(tensors);
    return staging.finish(host_->recv(host, from_rank, tag));
  }

  Result recvAnysource(Tensors& tensors, int tag) override {
    Staging staging("recv");
    auto host = staging.received(tensors);
    return staging.finish(host_->recvAnysource(host, tag));
  }

  Result barrier(const c10d::BarrierOptions& options) override {
    synchronize_stream(current_stream(current_device()));
    return host_->barrier(options);
  }

  void abort() override { host_->abort(); }
  void shutdown() override { host_->shutdown(); }

 private:
  c10::intrusive_ptr<c10d::Backend> host_;
};

}  // namespace

void add_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& host,
                 const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto backend = c10::make_intrusive<HostBackend>(host->getBackend(c10::kCPU), group->getRank(),
                                                  group->getSize());
  group->setBackend(kType, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::intrusive_ptr<c10d::Backend>(std::move(backend)));
}

}  // namespace torchyard::simulated
