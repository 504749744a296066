#include "base/scratch.h"

#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace torchyard {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Scratch::~Scratch() { std::free(block_); }

std::byte* Scratch::acquire(size_t bytes) {
  if (bytes <= size_ && block_ != nullptr) return block_;
  std::free(block_);
  block_ = nullptr;
  size_ = 0;
  if (bytes > SIZE_MAX - kHugePage) return nullptr;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kScratchAlignment;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = nullptr;
  if (posix_memalign(&block, alignment, rounded == 0 ? alignment : rounded) != 0) return nullptr;
#if defined(__linux__)
  // Packed keys and values are read by strides of kilobytes: with 4 KiB pages the translation
  // buffer misses on most of them.
  if (alignment == kHugePage) (void)madvise(block, rounded, MADV_HUGEPAGE);
#endif
  block_ = static_cast<std::byte*>(block);
  size_ = rounded == 0 ? alignment : rounded;
  return block_;
}

void Scratch::release() {
  if (size_ <= kKeptBytes) return;
  std::free(block_);
  block_ = nullptr;
  size_ = 0;
}

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace torchyard
