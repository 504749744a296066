// Lays the tensors of a group out in rows and columns.
#pragma once

#include <cstdint>
#include <cstring>

#include "bindings/tensor_reader.h"
#include "programs/program.h"

namespace torchyard {

// Whether a tensor's elements fill its memory without gaps or overlaps, in some order of its
// dimensions.
inline bool is_dense(const TensorView& t) {
  int64_t step = 1;
  bool plain = true;
  for (int64_t d = t.dim - 1; d >= 0 && plain; --d) {
    plain = t.sizes[d] == 1 || t.strides[d] == step;
    step *= t.sizes[d];
  }
  if (plain) return true;
  step = 1;
  for (int64_t n = 0; n < t.dim; ++n) {
    int64_t total = 1;
    bool found = false;
    for (int64_t d = 0; d < t.dim; ++d) {
      total *= t.sizes[d];
      if (t.sizes[d] != 1 && t.strides[d] == step && !found) found = true;
    }
    if (step == total) return true;
    if (!found) return false;
    for (int64_t d = 0; d < t.dim; ++d) {
      if (t.sizes[d] != 1 && t.strides[d] == step) {
        step *= t.sizes[d];
        break;
      }
    }
  }
  return false;
}

inline bool same_layout(const TensorView& a, const TensorView& b) {
  if (a.dim != b.dim) return false;
  for (int64_t d = 0; d < a.dim; ++d) {
    if (a.sizes[d] != b.sizes[d] || (a.strides[d] != b.strides[d] && a.sizes[d] != 1)) return false;
  }
  return true;
}

// Adds a tensor to a broadcast shape; false where it does not broadcast.
inline bool broaden(const TensorView& t, int64_t* dim, int64_t* shape) {
  if (t.dim > *dim) {
    std::memmove(shape + t.dim - *dim, shape, static_cast<size_t>(*dim) * sizeof(int64_t));
    for (int64_t d = 0; d < t.dim - *dim; ++d) shape[d] = 1;
    *dim = t.dim;
  }
  for (int64_t d = 0; d < t.dim; ++d) {
    int64_t& size = shape[*dim - t.dim + d];
    if (size == 1) {
      size = t.sizes[d];
    } else if (t.sizes[d] != 1 && t.sizes[d] != size) {
      return false;
    }
  }
  return true;
}

// The tensors of a group, and which place each of them has.
struct Group {
  TensorView views[kMaxProgramPlaces];
  int64_t place[kMaxProgramPlaces];
  int64_t count;
};

// Gives a group's tensors rows and columns, results last; false where that takes more than two
// dimensions. The last tensor's order in memory decides.
inline bool lay_out(const Group& group, int64_t dim, const int64_t* shape, int64_t* sizes,
                    ProgramPlace* places) {
  const TensorView& leading = group.views[group.count - 1];
  int64_t order[kMaxTensorDim];
  int64_t used = 0;
  for (int64_t d = 0; d < dim; ++d) {
    if (shape[d] == 1) continue;
    int64_t at = used++;
    for (; at > 0 && leading.strides[order[at - 1]] < leading.strides[d]; --at) {
      order[at] = order[at - 1];
    }
    order[at] = d;
  }
  const auto stride = [&](int64_t tensor, int64_t d) {
    const TensorView& t = group.views[tensor];
    const int64_t own = d - (dim - t.dim);
    return own < 0 || t.sizes[own] == 1 ? 0 : t.strides[own];
  };
  // The dimension that each of the two merged ones ends with.
  int64_t last[2] = {-1, -1};
  int64_t merged = 0;
  sizes[0] = sizes[1] = 1;
  for (int64_t i = 0; i < used; ++i) {
    const int64_t d = order[i];
    bool joins = merged > 0;
    for (int64_t t = 0; joins && t < group.count; ++t) {
      joins = stride(t, last[merged - 1]) == stride(t, d) * shape[d];
    }
    if (!joins && merged++ == 2) return false;
    sizes[merged - 1] = (joins ? sizes[merged - 1] : 1) * shape[d];
    last[merged - 1] = d;
  }
  if (merged == 1) {
    sizes[1] = sizes[0];
    sizes[0] = 1;
    last[1] = last[0];
    last[0] = -1;
  }
  for (int64_t t = 0; t < group.count; ++t) {
    places[group.place[t]] = {static_cast<char*>(group.views[t].data),
                              last[0] < 0 ? 0 : stride(t, last[0]),
                              last[1] < 0 ? 0 : stride(t, last[1])};
  }
  return true;
}

}  // namespace torchyard
