// The PrivateUse1 hooks: what torch's device-independent code asks of this device.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace torchyard::simulated {

at::PrivateUse1HooksInterface* hooks();

}  // namespace torchyard::simulated
