// Large pages for what a call is about to write.
//
// Memory that was just taken from the system has no pages yet: each 4096 bytes cost a fault at
// their first use, a microsecond that includes clearing them, where computing what they hold may
// take less. Two megabytes given at once cost less than a tenth of that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torchyard {

constexpr uintptr_t kLargePage = uintptr_t{2} << 20;

// Consecutive addresses.
struct Span {
  uintptr_t first;
  uintptr_t end;
};

// Cuts spans that are going to be written to the whole large pages among them: in `spans`, in
// ascending order; returns how many there are. Spans that are neighbours but for the few bytes that
// an allocator keeps between blocks count as one.
int whole_large_pages(Span* spans, int count);

// Asks the system for large pages where spans will be written from end to end. Pages that are there
// already stay as they are. A wish: nothing else depends on whether it is fulfilled.
void expect_writes(Span* spans, int count);

}  // namespace torchyard
