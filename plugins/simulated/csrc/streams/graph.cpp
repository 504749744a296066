#include "streams/graph.h"

#include "device/device.h"
#include "device/generator.h"
#include "memory/allocator.h"
#include "streams/capture.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <fstream>
#include <optional>

namespace torchyard::simulated {

namespace {

using GeneratorStates = std::array<c10::intrusive_ptr<c10::TensorImpl>, kDeviceCount>;

GeneratorStates save_generators() {
  GeneratorStates states;
  for (c10::DeviceIndex device = 0; device < kDeviceCount; ++device) {
    states[device] = default_generator(device).unsafeGetGeneratorImpl()->get_state();
  }
  return states;
}

void restore_generators(const GeneratorStates& states) {
  for (c10::DeviceIndex device = 0; device < kDeviceCount; ++device) {
    default_generator(device).unsafeGetGeneratorImpl()->set_state(*states[device]);
  }
}

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args) : keep_graph_(args.keep_graph) {}

  ~Graph() override { release(); }

  // Every capture mode means the same here: a synchronizing call on a capturing stream is refused.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override {
    DeviceLock lock(device_mutex());
    TORCH_CHECK(!capture_,
                "graph capture: this graph was captured already; reset() it before the next");
    device_ = current_device();
    Queue& queue = current_queue(device_);
    TORCH_CHECK(
        queue.stream() != default_stream(device_),
        "graph capture: expected the current stream to be one you made, got the default stream; "
        "use `with torch.Stream(device), graph:`");
    TORCH_CHECK(!queue.capture, "graph capture: this stream is being captured already");
    queue.drain();
    static std::atomic<uint64_t> next{1};
    const uint64_t id = next++;
    const bool shared = pool.first != 0 || pool.second != 0;
    auto capture = std::make_shared<Capture>(queue, id, shared ? pool : c10::MempoolId_t{id, 0});
    acquire_pool(capture->pool());
    capture_ = capture;
    queue.capture = capture;
    generators_ = save_generators();
  }

  void capture_end() override {
    DeviceLock lock(device_mutex());
    TORCH_CHECK(capture_ && capture_->active(),
                "graph capture: capture_end() without capture_begin()");
    const bool same_stream = &current_queue(device_) == &capture_->origin();
    // Tracing drew numbers that no user asked for.
    restore_generators(generators_);
    try {
      capture_->finish();
      TORCH_CHECK(same_stream,
                  "graph capture: expected to end on the stream where it began, got another");
    } catch (...) {
      release();
      throw;
    }
    if (!keep_graph_) {
      instantiate();
    }
  }

  void instantiate() override {
    TORCH_CHECK(capture_ && !capture_->active(), "graph: expected a finished capture, got none");
    instantiated_ = true;
  }

  void replay() override {
    TORCH_CHECK(capture_ && !capture_->active(),
                "graph: expected a finished capture to replay, got none");
    if (!instantiated_) {
      instantiate();
    }
    const auto capture = capture_;
    {
      DeviceLock lock(device_mutex());
      Queue& queue = current_queue(device_);
      if (queue.capture) {
        queue.capture->refuse("replaying another graph");
      }
      queue.drain();
    }
    for (const Node& node : capture->nodes()) {
      node.run();
    }
  }

  void reset() override {
    DeviceLock lock(device_mutex());
    TORCH_CHECK(!capture_ || !capture_->active(), "graph: reset() during its capture");
    release();
  }

  c10::MempoolId_t pool() const override {
    TORCH_CHECK(capture_, "graph: pool() needs a capture, and there is none");
    return capture_->pool();
  }

  void enable_debug_mode() override { debug_ = true; }

  void debug_dump(const std::string& path) override {
    TORCH_CHECK(debug_, "graph: debug_dump() needs enable_debug_mode() before it");
    TORCH_CHECK(capture_, "graph: debug_dump() needs a capture, and there is none");
    std::ofstream file(path);
    for (const Node& node : capture_->nodes()) {
      file << node.name << '\n';
    }
    TORCH_CHECK(file.good(), "path: cannot write the graph to ", path);
  }

 private:
  void release() {
    DeviceLock lock(device_mutex());
    if (!capture_) {
      return;
    }
    if (capture_->active()) {
      try {
        capture_->finish();
      } catch (const c10::Error&) {  // dropped in the middle of a capture: nobody wants its result
      }
    }
    const auto pool = capture_->pool();
    capture_.reset();
    instantiated_ = false;
    release_pool(pool);
  }

  bool keep_graph_;
  bool instantiated_ = false;
  bool debug_ = false;
  c10::DeviceIndex device_ = 0;
  std::shared_ptr<Capture> capture_;
  GeneratorStates generators_;
};

}  // namespace

std::unique_ptr<at::GraphImplInterface> make_graph(const at::GraphImplArgs& args) {
  return std::make_unique<Graph>(args);
}

}  // namespace torchyard::simulated
