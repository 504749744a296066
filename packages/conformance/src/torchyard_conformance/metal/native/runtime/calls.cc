// What a kernel calls: memory, positions, waiting, and the compiler's callbacks for each access.

#include "../shim/interface.h"
#include "run.h"
#include "threads/group.h"

namespace torchyard_metal {

void* buffer(int index) {
  const auto found = job.buffers.find(index);
  if (found == job.buffers.end()) return nullptr;
  return memory.regions()[static_cast<size_t>(found->second.region)]->base + found->second.offset;
}

void* group_memory(int index) {
  const auto found = job.group_memory.find(index);
  if (found == job.group_memory.end()) return nullptr;
  // Numbers from above, which no variable of a source reaches.
  const unsigned number = Memory::kMostVariables - 1 - static_cast<unsigned>(index);
  const std::string name = "threadgroup(" + std::to_string(index) + ")";
  return memory.variable(number, name, found->second, 1, job.coarse ? 4 : 1).base;
}

void* group_variable(int number, const char* name, unsigned long size, unsigned element,
                     unsigned scalar, int line) {
  const size_t before = memory.variables_size();
  Region& region =
      memory.variable(static_cast<unsigned>(number), name, size, element, job.coarse ? scalar : 1);
  const size_t now = memory.variables_size();
  constexpr size_t kMost = 32 << 10;  // of every Apple GPU
  if (before <= kMost && now > kMost) {
    Finding made;
    made.kind = "threadgroup-memory";
    made.line = line;
    made.text = std::to_string(now);
    findings.add(made);
  }
  return region.base;
}

unsigned position(Place place, int dimension) { return group->coordinate(place, dimension); }

void group_barrier(int flags, int line) { group->wait_for_group(flags, line); }

void simd_barrier(int flags, int line) { group->wait_for_simdgroup(flags, line); }

const Exchange* exchange(const void* value, unsigned size, int operation, int line) {
  return group->wait_for_lanes(value, size, operation, line);
}

void simd_fault(SimdFault fault, const char* function, int line) {
  Finding made;
  made.kind = fault == SimdFault::kInactiveLane  ? "inactive-lane"
              : fault == SimdFault::kNotAllLanes ? "divergent-simdgroup"
                                                 : "simd-width";
  made.line = line;
  made.who = {group->accessor().group, group->accessor().thread};
  made.text = function;
  findings.add(made);
}

void atomic_access(const volatile void* address, unsigned size, bool writes) {
  check_access(address, size, writes, true, TORCHYARD_SITE);
}

bool fails_spuriously() {
  // The first of every few, in orders other than the first: a loop around it then goes on.
  static unsigned calls = 0;
  return job.seed != 0 && calls++ % 5 == 0;
}

void overflowed(const char* type, float value) {
  Finding made;
  made.kind = std::string(type) + "-overflow";
  made.site = TORCHYARD_SITE;
  made.who = {group->accessor().group, group->accessor().thread};
  made.text = std::to_string(value);
  findings.add(made);
}

}  // namespace torchyard_metal

using namespace torchyard_metal;

// The callbacks of -fsanitize=thread, which announce every access before it is made. This runtime
// takes the place of ThreadSanitizer's, which knows no threadgroups.
#define ACCESS(name, size, writes)                              \
  extern "C" void __tsan_##name(void* address) {                \
    check_access(address, size, writes, false, TORCHYARD_SITE); \
  }
#define ACCESSES(size)                      \
  ACCESS(read##size, size, false)           \
  ACCESS(write##size, size, true)           \
  ACCESS(unaligned_read##size, size, false) \
  ACCESS(unaligned_write##size, size, true) \
  ACCESS(volatile_read##size, size, false)  \
  ACCESS(volatile_write##size, size, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* address, unsigned long size) {
  check_access(address, static_cast<unsigned>(size), false, false, TORCHYARD_SITE);
}
void __tsan_write_range(void* address, unsigned long size) {
  check_access(address, static_cast<unsigned>(size), true, false, TORCHYARD_SITE);
}
void* __tsan_memcpy(void* to, const void* from, unsigned long size) {
  check_access(from, static_cast<unsigned>(size), false, false, TORCHYARD_SITE);
  check_access(to, static_cast<unsigned>(size), true, false, TORCHYARD_SITE);
  return __builtin_memcpy(to, from, size);
}
void* __tsan_memset(void* to, int value, unsigned long size) {
  check_access(to, static_cast<unsigned>(size), true, false, TORCHYARD_SITE);
  return __builtin_memset(to, value, size);
}
void* __tsan_memmove(void* to, const void* from, unsigned long size) {
  check_access(from, static_cast<unsigned>(size), false, false, TORCHYARD_SITE);
  check_access(to, static_cast<unsigned>(size), true, false, TORCHYARD_SITE);
  return __builtin_memmove(to, from, size);
}
}
