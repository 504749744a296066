// Collectives of this device, by a backend of the host on copies of the tensors.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace torchyard::simulated {

// Give `group` a backend for this device that moves data through `host`'s backend for the CPU.
//
// An operation reads its tensors when it is called, after the earlier work of their device's
// current stream; see StreamWork for when its results arrive. During a graph capture it is refused,
// as every copy to the host.
void add_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& host,
                 const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace torchyard::simulated
