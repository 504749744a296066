// Integer arithmetic.
#pragma once

#include <cstdint>

namespace torchyard {

// Returns a / b rounded up, for a >= 0 and b > 0.
static constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace torchyard
