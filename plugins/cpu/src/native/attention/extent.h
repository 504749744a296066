// The range of addresses that a tensor occupies.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "base/large_pages.h"

namespace torchyard {

// The bytes of a tensor of these sizes; none where it has gaps.
inline Span extent_of(const StridedOutput& tensor, const int64_t (&sizes)[4], DType dtype) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(tensor.data);
  const int64_t head = sizes[2] * sizes[3];
  if (tensor.row != sizes[3] || tensor.head != head || tensor.batch != sizes[1] * head) {
    return {first, first};
  }
  return {first, first + static_cast<uintptr_t>(sizes[0] * tensor.batch * element_bytes(dtype))};
}

}  // namespace torchyard
