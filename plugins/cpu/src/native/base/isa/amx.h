// Whether matrix tiles may be used, and compute what they should.
#pragma once

namespace torchyard {

// Asks the operating system for this process's permission to use tile registers, where it wants to
// be asked, and multiplies two small matrices by them. To be called only where cpuid reports
// AMX-TILE and AMX-BF16 and the operating system saves the registers.
bool matrix_tiles_work();

}  // namespace torchyard
