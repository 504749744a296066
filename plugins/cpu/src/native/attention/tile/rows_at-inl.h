// Where the rows of one head's keys or values lie: at a stride, or in the pages of a cache.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "simd/format.h"

namespace torchyard {
namespace {

// Rows at a stride. Like PagedRows it is a small value that lies in registers; rows[i] is the
// address of row `first` + i.
template <class Element>
struct StridedRows {
  struct Buffer {};
  const Element* start;
  int64_t stride;

  static TORCHYARD_INLINE StridedRows place(const ForwardArgs&, const Strided& tensor,
                                            int64_t batch, int64_t head, int64_t first, int,
                                            Buffer*) {
    return {static_cast<const Element*>(tensor.data) + batch * tensor.batch + head * tensor.head +
                first * tensor.row,
            tensor.row};
  }
  // Rows from a known address on, up to `*count`.
  static TORCHYARD_INLINE StridedRows from(const ForwardArgs&, const Strided& tensor,
                                           const Element* start, int*, Buffer*) {
    return {start, tensor.row};
  }
  TORCHYARD_INLINE const Element* operator[](int64_t i) const { return start + i * stride; }
};

// Rows of up to one panel, wherever each lies.
template <class Element>
struct PagedRows {
  // The addresses of one head's rows; for one tensor, batch and head as long as it lives.
  struct Buffer {
    const Element* rows[kPanelKeys];
    int64_t first = -1;  // the row that rows[0] is; -1: none
    int count = 0;
  };
  const Element* const* rows;

  static PagedRows place(const ForwardArgs& args, const Strided& tensor, int64_t batch,
                         int64_t head, int64_t first, int count, Buffer* buffer) {
    // What was to be fetched a chunk ago is met now.
    if (buffer->first == first && buffer->count >= count) return {buffer->rows};
    buffer->first = first;
    buffer->count = count;
    const Pages& pages = *args.pages;
    const Element* base = static_cast<const Element*>(tensor.data) + head * tensor.head;
    const int32_t* page = pages.table + batch * pages.width + first / pages.page_keys;
    int64_t within = first % pages.page_keys;
    for (int at = 0; at < count; ++page, within = 0) {
      const int64_t left = pages.page_keys - within;
      const int run = left < count - at ? static_cast<int>(left) : count - at;
      const Element* start = base + *page * tensor.batch + within * tensor.row;
      for (int i = 0; i < run; ++i) buffer->rows[at + i] = start + i * tensor.row;
      at += run;
    }
    return {buffer->rows};
  }
  // As in StridedRows; what follows the page is unknown.
  static PagedRows from(const ForwardArgs& args, const Strided& tensor, const Element* start,
                        int* count, Buffer* buffer) {
    *count = static_cast<int>(*count < args.pages->page_keys ? *count : args.pages->page_keys);
    for (int i = 0; i < *count; ++i) buffer->rows[i] = start + i * tensor.row;
    buffer->first = -1;
    return {buffer->rows};
  }
  TORCHYARD_INLINE const Element* operator[](int64_t i) const { return rows[i]; }
};

}  // namespace
}  // namespace torchyard
