// The simulated devices and the calling thread's current one.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace torchyard::simulated {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DeviceIndex kDeviceCount = 2;

inline c10::Device device_of(c10::DeviceIndex index) { return c10::Device(kType, index); }

// Raises unless 0 <= index < kDeviceCount.
void check_index(c10::DeviceIndex index);

// The current device of this thread, and its replacement (no check: usable from destructors).
c10::DeviceIndex current_device() noexcept;
c10::DeviceIndex exchange_device(c10::DeviceIndex index) noexcept;

// -1 means "the current device", as everywhere in torch.
c10::DeviceIndex resolve_index(c10::DeviceIndex index);

}  // namespace torchyard::simulated
