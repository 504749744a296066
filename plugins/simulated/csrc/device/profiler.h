// torch.profiler on this device: how long each operator's work took in its stream.
#pragma once

namespace torchyard::simulated {

// Called once. Times are the host's, between two marks of a stream that nothing else runs between:
// of copies, fills, generated kernels and the publication of results. What an operator computes on
// the host when it is called is in its CPU time.
void register_profiler();

}  // namespace torchyard::simulated
