// Large pages are asked for only where every byte of them is going to be written.
#include "base/large_pages.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

using torchyard::kLargePage;
using torchyard::Span;

// Bytes that an allocator may keep between two blocks, which lie in pages of both.
constexpr uintptr_t kBetween = 4095;

bool written(const std::vector<Span>& spans, uintptr_t at) {
  return std::any_of(spans.begin(), spans.end(), [at](const Span& span) {
    return span.first <= at + kBetween && at < span.end + kBetween && span.first < span.end;
  });
}

// Returns what is wrong with the pages cut from `spans`, or nullptr.
const char* fault(const std::vector<Span>& spans, int* pages) {
  std::vector<Span> cut = spans;
  cut.resize(torchyard::whole_large_pages(cut.data(), static_cast<int>(cut.size())));
  uintptr_t last = 0;
  for (const Span& span : cut) {
    if (span.first % kLargePage != 0 || span.end % kLargePage != 0) return "a part of a page";
    if (span.first >= span.end || span.first < last) return "no ascending spans";
    last = span.end;
    *pages += static_cast<int>((span.end - span.first) / kLargePage);
    for (uintptr_t at = span.first; at < span.end; at += 512) {
      if (!written(spans, at)) return "memory that is not written";
    }
  }
  for (const Span& span : spans) {
    const uintptr_t first = (span.first + kLargePage - 1) / kLargePage * kLargePage;
    for (uintptr_t at = first; at + kLargePage <= span.end; at += kLargePage) {
      const bool found = std::any_of(cut.begin(), cut.end(), [at](const Span& page) {
        return page.first <= at && at + kLargePage <= page.end;
      });
      if (!found) return "a whole page left out";
    }
  }
  return nullptr;
}

// Whether memory that is written after the wish holds what was written.
bool holds_what_is_written() {
#if defined(__linux__)
  constexpr size_t kBytes = 3 * kLargePage;
  void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return false;
  unsigned char* bytes = static_cast<unsigned char*>(block);
  const uintptr_t first = reinterpret_cast<uintptr_t>(block);
  bytes[kBytes / 2] = 7;
  Span span{first, first + kBytes};
  torchyard::expect_writes(&span, 1);
  bool good = bytes[kBytes / 2] == 7 && bytes[0] == 0;
  for (size_t i = 0; i < kBytes; i += 1021) bytes[i] = static_cast<unsigned char>(i);
  for (size_t i = 0; i < kBytes; i += 1021) {
    good = good && bytes[i] == static_cast<unsigned char>(i);
  }
  munmap(block, kBytes);
  return good;
#else
  return true;
#endif
}

}  // namespace

int main() {
  std::mt19937 random(0);
  int cases = 0;
  int pages = 0;
  int failures = 0;
  for (; cases < 300; ++cases) {
    std::vector<Span> spans;
    uintptr_t at = uintptr_t{1} << 32;
    for (int i = static_cast<int>(random() % 4); i >= 0; --i) {
      const uintptr_t gaps[] = {0, 16, 4095, 4096, 70000, kLargePage};
      at += gaps[random() % 6];
      const uintptr_t sizes[] = {0, 64, 300000, kLargePage, 5 * kLargePage / 2};
      const uintptr_t size = sizes[random() % 5];
      spans.push_back({at, at + size});
      at += size;
    }
    std::shuffle(spans.begin(), spans.end(), random);
    if (const char* what = fault(spans, &pages)) {
      ++failures;
      std::printf("case %d: %s\n", cases, what);
    }
  }
  if (!holds_what_is_written()) {
    ++failures;
    std::printf("memory does not hold what was written\n");
  }
  std::printf("%d cases, %d pages, %d failures\n", cases, pages, failures);
  return pages == 0 || failures != 0;
}
