// torch's device guard interface on top of device, stream and event.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace torchyard::simulated {

const c10::impl::DeviceGuardImplInterface* device_guard();

}  // namespace torchyard::simulated
