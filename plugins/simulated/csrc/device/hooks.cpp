#include "device/hooks.h"

#include "device/device.h"
#include "device/generator.h"
#include "memory/allocator.h"
#include "memory/host_allocator.h"
#include "memory/memory.h"

namespace torchyard::simulated {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }

  bool isAvailable() const override { return true; }

  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device >= 0 && device < kDeviceCount;
  }

  c10::DeviceIndex deviceCount() const override { return kDeviceCount; }

  void setCurrentDevice(c10::DeviceIndex device) const override {
    check_index(device);
    exchange_device(device);
  }

  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    check_index(device);
    return exchange_device(device);
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }

  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }

  c10::Device getDeviceFromPtr(void* data) const override {
    const c10::DeviceIndex index = owner_of(data);
    TORCH_CHECK(index >= 0, "data: expected a pointer into simulated memory, got ", data);
    return device_of(index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

at::PrivateUse1HooksInterface* hooks() {
  static auto* const instance = new Hooks();  // torch keeps the pointer until exit
  return instance;
}

}  // namespace torchyard::simulated
