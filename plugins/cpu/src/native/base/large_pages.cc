#include "base/large_pages.h"

#include <algorithm>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace torchyard {

namespace {

// Less than a small page: no page is between the spans that neither of them touches.
constexpr uintptr_t kBetweenBlocks = 4095;

}  // namespace

int whole_large_pages(Span* spans, int count) {
  const auto empty = [](const Span& span) { return span.first >= span.end; };
  count = static_cast<int>(std::remove_if(spans, spans + count, empty) - spans);
  std::sort(spans, spans + count, [](const Span& a, const Span& b) { return a.first < b.first; });
  int kept = 0;
  for (int i = 0; i < count;) {
    Span joined = spans[i++];
    while (i < count && spans[i].first <= joined.end + kBetweenBlocks) {
      joined.end = std::max(joined.end, spans[i++].end);
    }
    joined.first = (joined.first + kLargePage - 1) / kLargePage * kLargePage;
    joined.end = joined.end / kLargePage * kLargePage;
    if (joined.first < joined.end) spans[kept++] = joined;
  }
  return kept;
}

void expect_writes(Span* spans, int count) {
  count = whole_large_pages(spans, count);
#if defined(__linux__)
  for (int i = 0; i < count; ++i) {
    (void)madvise(reinterpret_cast<void*>(spans[i].first), spans[i].end - spans[i].first,
                  MADV_HUGEPAGE);
  }
#endif
}

}  // namespace torchyard
