#include "device/guard.h"

#include "device/device.h"
#include "memory/allocator.h"
#include "streams/capture.h"
#include "streams/event.h"
#include "streams/stream.h"

namespace torchyard::simulated {

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }

  c10::Device exchangeDevice(c10::Device device) const override {
    check_index(device.index());
    return device_of(exchange_device(device.index()));
  }

  c10::Device getDevice() const override { return device_of(current_device()); }

  void setDevice(c10::Device device) const override {
    check_index(device.index());
    exchange_device(device.index());
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    exchange_device(device.index());
  }

  c10::DeviceIndex deviceCount() const noexcept override { return kDeviceCount; }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    return c10::DeviceCapability();
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return pool_stream(device.index());
  }

  c10::Stream getNewStream(c10::Device device, int) const override {
    return pool_stream(device.index());
  }

  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }

  void* getStreamNativeHandle(const c10::Stream stream) const override { return &queue_of(stream); }

  bool queryStream(const c10::Stream& stream) const override { return query_stream(stream); }

  void synchronizeStream(const c10::Stream& stream) const override { synchronize_stream(stream); }

  bool isStreamCapturing(const c10::Stream& stream) const override {
    DeviceLock lock(device_mutex());
    return queue_of(stream).capture != nullptr;
  }

  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    record_event(event, stream, flag);
  }

  void block(void* event, const c10::Stream& stream) const override { block_stream(event, stream); }

  bool queryEvent(void* event) const override { return query_event(event); }

  void synchronizeEvent(void* event) const override { synchronize_event(event); }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return elapsed_ms(start, end);
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    destroy_event(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator()->recordStream(data, stream);
  }
};

}  // namespace

const c10::impl::DeviceGuardImplInterface* device_guard() {
  static const auto* const instance = new Guard();  // torch's registry never frees it
  return instance;
}

}  // namespace torchyard::simulated
