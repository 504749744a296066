#include "device/device.h"

namespace torchyard::simulated {

namespace {
thread_local c10::DeviceIndex current = 0;
}  // namespace

void check_index(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kDeviceCount, "simulated device index: expected 0 to ",
              kDeviceCount - 1, ", got ", static_cast<int>(index));
}

c10::DeviceIndex current_device() noexcept { return current; }

c10::DeviceIndex exchange_device(c10::DeviceIndex index) noexcept {
  const c10::DeviceIndex previous = current;
  current = index;
  return previous;
}

c10::DeviceIndex resolve_index(c10::DeviceIndex index) {
  if (index == -1) {
    return current;
  }
  check_index(index);
  return index;
}

}  // namespace torchyard::simulated
