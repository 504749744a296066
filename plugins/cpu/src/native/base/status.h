// The result of a call of native code.
#pragma once

namespace torchyard {

enum class Status { kOk, kOutOfMemory, kIndexOutOfRange };

}  // namespace torchyard
