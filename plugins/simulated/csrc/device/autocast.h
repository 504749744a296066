// torch.autocast on this device: torch's own lists of operators and dtypes.
#pragma once

namespace torchyard::simulated {

void register_autocast();

}  // namespace torchyard::simulated
