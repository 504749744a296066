#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if TORCHYARD_ADDRESS
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__APPLE__)
#define SYMBOL(name) "_" name
#else
#define SYMBOL(name) name
#endif

#if defined(__x86_64__)
// Registers that a called function must keep, by the System V ABI.
__asm__(".text\n.globl " SYMBOL("torchyard_metal_switch") "\n" SYMBOL("torchyard_metal_switch") ":\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n");
#elif defined(__aarch64__)
// Registers that a called function must keep, by the AAPCS64.
__asm__(".text\n.globl " SYMBOL("torchyard_metal_switch") "\n" SYMBOL("torchyard_metal_switch") ":\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n  ret\n");
#endif
#if defined(__x86_64__) || defined(__aarch64__)
extern "C" void torchyard_metal_switch(void** from, void* to);
#endif

namespace torchyard_metal {
namespace {

constexpr size_t kStack = 256 << 10;

}  // namespace

Stacks::Stacks(unsigned count) : count_(count) {
  guard_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  stride_ = guard_ + kStack;
  void* memory = mmap(nullptr, count_ * stride_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("stacks of threads");
    std::abort();
  }
  base_ = static_cast<char*>(memory);
  for (size_t i = 0; i < count_; i++) mprotect(base_ + i * stride_, guard_, PROT_NONE);
}

bool Stacks::overflowed(const void* address) const {
  return has(address) &&
         static_cast<size_t>(static_cast<const char*>(address) - base_) % stride_ < guard_;
}

void Stacks::prepare(Context& context, unsigned index, void (*entry)()) const {
  char* low = base_ + index * stride_ + guard_;
  context.stack = low;
  context.stack_size = kStack;
  context.sanitizer = nullptr;
#if defined(__x86_64__)
  // At a function's entry the stack is 8 beyond a multiple of 16.
  auto* top = reinterpret_cast<void**>(low + kStack - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  context.stack_pointer = top;
#elif defined(__aarch64__)
  auto* top = reinterpret_cast<void**>(low + kStack - 64 - 160);
  for (int i = 0; i < 20; i++) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30
  context.stack_pointer = top;
#else
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = low;
  context.state.uc_stack.ss_size = kStack;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
#endif
}

void switch_context(Context& from, Context& to) {
#if TORCHYARD_ADDRESS
  __sanitizer_start_switch_fiber(&from.sanitizer, to.stack, to.stack_size);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  torchyard_metal_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.state, &to.state);
#endif
  arrived(from);
}

void arrived(Context& at) {
#if TORCHYARD_ADDRESS
  // Of the stack that was left, which is the scheduler's or a thread's, only the first is asked
  // for.
  const void* stack = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(at.sanitizer, &stack, &size);
  static const void* first = nullptr;
  if (!first) first = stack;
#else
  (void)at;
#endif
}

}  // namespace torchyard_metal
