#include "device/profiler.h"

#include "device/device.h"
#include "streams/event.h"
#include "streams/stream.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

namespace torchyard::simulated {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct Mark {
  void* event = nullptr;  // null: of a capture, in which no time passes
  ~Mark() { destroy_event(event); }
};

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    const c10::DeviceIndex index = current_device();
    if (device != nullptr) {
      *device = index;
    }
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    auto mark = std::make_shared<Mark>();
    const c10::Stream stream = current_stream(index);
    DeviceLock lock(device_mutex());
    if (!queue_of(stream).capture) {
      record_event(&mark->event, stream, c10::EventFlag::BACKEND_DEFAULT);
    }
    *event = std::move(mark);
  }

  // In microseconds.
  float elapsed(const ProfilerVoidEventStub* start,
                const ProfilerVoidEventStub* end) const override {
    auto* const first = static_cast<Mark*>(start->get());
    auto* const last = static_cast<Mark*>(end->get());
    if (first == nullptr || last == nullptr || !first->event || !last->event) {
      return 0;
    }
    synchronize_event(first->event);
    synchronize_event(last->event);
    return static_cast<float>(elapsed_ms(first->event, last->event) * 1000);
  }

  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> visit) const override {
    const c10::DeviceIndex before = current_device();
    for (c10::DeviceIndex index = 0; index < kDeviceCount; ++index) {
      exchange_device(index);
      visit(index);
    }
    exchange_device(before);
  }

  void synchronize() const override { synchronize_device(current_device()); }
};

}  // namespace

void register_profiler() {
  static auto* const stubs = new Stubs();  // torch keeps the pointer until exit
  torch::profiler::impl::registerPrivateUse1Methods(stubs);
}

}  // namespace torchyard::simulated
