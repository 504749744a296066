// The dtypes of tensors that the floating-point kernels read and write.
#pragma once

#include <cstdint>

namespace torchyard {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16 };

static constexpr int64_t element_bytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

}  // namespace torchyard
