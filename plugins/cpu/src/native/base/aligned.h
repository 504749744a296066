// Memory at multiples of a power of two, which each system has by another name.
#pragma once

#include <cstdlib>

#if defined(_WIN32)
#include <malloc.h>
#endif

namespace torchyard {

// Null where there is none. `alignment` is a power of two and a multiple of a pointer's size. Given
// back by free_aligned() alone.
inline void* allocate_aligned(size_t alignment, size_t bytes) {
#if defined(_WIN32)
  return _aligned_malloc(bytes, alignment);
#else
  void* block = nullptr;
  return posix_memalign(&block, alignment, bytes) == 0 ? block : nullptr;
#endif
}

inline void free_aligned(void* block) {
#if defined(_WIN32)
  _aligned_free(block);
#else
  std::free(block);
#endif
}

}  // namespace torchyard
