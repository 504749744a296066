// The threads of torch's autograd engine of this device.
#pragma once

namespace torchyard::simulated {

// Called by every kernel: notices when one runs on a thread other than the process's first.
void note_thread() noexcept;

// Return once the engine's threads have let go of every earlier backward pass.
//
// A device thread drops the last references of a finished backward pass after its caller has gone
// on. Where Python has seen those tensors that takes the GIL, and taking the GIL in an interpreter
// that is shutting down ends the process with SIGABRT (pytorch issue 190489). Python calls this at
// exit: a thread that runs one more pass, of tensors that Python never sees, is done with the rest.
void settle_engine();

}  // namespace torchyard::simulated
