// The kernels of an op: one list per instruction set, and a table of the lists of a build.
//
// <op>/isa/<set>.cc defines the list of a set with TORCHYARD_KERNELS. CMakeLists.txt finds these
// files by the rows of isas.inc and writes the table from kernel_table.cc.in, best set first.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/isa/isa.h"

namespace torchyard {

template <class Kernel>
struct KernelList {
  const Kernel* first;
  size_t count;
};

// A Kernel has at least `name`, `required`, and where the op has several dtypes `dtype`; `isa`
// where a caller may ask for one set.
template <class Kernel>
class KernelTable {
 public:
  template <size_t kLists>
  constexpr explicit KernelTable(const KernelList<Kernel>* const (&lists)[kLists])
      : lists_(lists), count_(kLists) {}

  size_t size() const {
    size_t count = 0;
    for (size_t i = 0; i < count_; ++i) count += lists_[i]->count;
    return count;
  }

  const Kernel& operator[](size_t index) const {
    size_t list = 0;
    while (index >= lists_[list]->count) index -= lists_[list++]->count;
    return lists_[list]->first[index];
  }

  // Returns the kernel of this name, or nullptr.
  const Kernel* find(const char* name) const {
    return first([name](const Kernel& kernel) { return std::strcmp(kernel.name, name) == 0; });
  }

  // Returns the first kernel whose features are all in `features`; nullptr where there is none.
  // The scalar kernels need no feature. A pure function: the caller detects the features.
  const Kernel* select(FeatureSet features) const {
    return first([features](const Kernel& kernel) { return (kernel.required & ~features) == 0; });
  }

  // The same among the kernels of `dtype`, and where `isa` is not nullptr, of that set.
  template <class DTypeT>
  const Kernel* select(DTypeT dtype, FeatureSet features, const char* isa = nullptr) const {
    return first([=](const Kernel& kernel) {
      return kernel.dtype == dtype && (kernel.required & ~features) == 0 &&
             (isa == nullptr || std::strcmp(kernel.isa, isa) == 0);
    });
  }

 private:
  template <class Predicate>
  const Kernel* first(Predicate predicate) const {
    for (size_t i = 0; i < count_; ++i) {
      const KernelList<Kernel>& list = *lists_[i];
      for (size_t k = 0; k < list.count; ++k) {
        if (predicate(list.first[k])) return &list.first[k];
      }
    }
    return nullptr;
  }

  const KernelList<Kernel>* const* lists_;
  size_t count_;
};

}  // namespace torchyard

// Defines the kernels of `table` for one instruction set: the rest are their initialisers.
#define TORCHYARD_KERNELS(table, Kernel, set, ...)      \
  extern const Kernel table##_kernels_##set[];          \
  const Kernel table##_kernels_##set[] = {__VA_ARGS__}; \
  extern const KernelList<Kernel> table##_##set;        \
  const KernelList<Kernel> table##_##set = {            \
      table##_kernels_##set, sizeof(table##_kernels_##set) / sizeof(table##_kernels_##set[0])};

// The same for a set that has other kernels of the op, but none of this table.
#define TORCHYARD_NO_KERNELS(table, Kernel, set) \
  extern const KernelList<Kernel> table##_##set; \
  const KernelList<Kernel> table##_##set = {nullptr, 0};
