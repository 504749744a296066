#include "base/scratch.h"

#include "base/aligned.h"
#include "base/large_pages.h"

namespace torchyard {

Scratch::~Scratch() { free_aligned(block_); }

std::byte* Scratch::acquire(size_t bytes) {
  if (bytes <= size_ && block_ != nullptr) return block_;
  free_aligned(block_);
  block_ = nullptr;
  size_ = 0;
  if (bytes > SIZE_MAX - kLargePage) return nullptr;
  const size_t alignment = bytes >= kLargePage ? kLargePage : kScratchAlignment;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = allocate_aligned(alignment, rounded == 0 ? alignment : rounded);
  if (block == nullptr) return nullptr;
  // Packed keys and values are read by strides of kilobytes: with 4 KiB pages the translation
  // buffer misses on most of them.
  const uintptr_t first = reinterpret_cast<uintptr_t>(block);
  Span span = {first, first + rounded};
  expect_writes(&span, 1);
  block_ = static_cast<std::byte*>(block);
  size_ = rounded == 0 ? alignment : rounded;
  return block_;
}

void Scratch::release() {
  if (size_ <= kKeptBytes) return;
  free_aligned(block_);
  block_ = nullptr;
  size_ = 0;
}

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace torchyard
