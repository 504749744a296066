// Stacks that are switched between: the threads of a threadgroup are fibers of one system thread.
#pragma once

#include <cstddef>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace torchyard_metal {

struct Context {
#if defined(__x86_64__) || defined(__aarch64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t state;
#endif
  // The stack, as AddressSanitizer is called with it at a switch.
  const void* stack = nullptr;
  size_t stack_size = 0;
  void* sanitizer = nullptr;
};

// Stacks of one size with an inaccessible page below each.
class Stacks {
 public:
  explicit Stacks(unsigned count);
  bool has(const void* address) const {
    return address >= base_ && address < base_ + count_ * stride_;
  }
  // Whether an address is on the page below a stack.
  bool overflowed(const void* address) const;
  // Makes a context that calls a function, which must never return, on a stack.
  void prepare(Context& context, unsigned index, void (*entry)()) const;

 private:
  char* base_;
  size_t count_, stride_, guard_;
};

void switch_context(Context& from, Context& to);
// The first thing on a new stack, and after every switch.
void arrived(Context& at);

}  // namespace torchyard_metal
