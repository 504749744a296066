// What a kernel's translation unit and the runtime say to each other. No system header is included
// here: a kernel's names must not collide with those of the C library.
#pragma once

namespace torchyard_metal {

using Bits64 = unsigned long long;

// Where a thread is, by Metal's name of the attribute.
enum class Place : int {
  kThreadInGrid,
  kGroupInGrid,
  kThreadInGroup,
  kIndexInGroup,
  kThreadsPerGroup,
  kGroupsPerGrid,
  kThreadsPerGrid,
  kIndexInSimdgroup,
  kSimdgroupInGroup,
  kThreadsPerSimdgroup,
  kSimdgroupsPerGroup,
  kIndexInQuadgroup,
  kQuadgroupInGroup,
  kQuadgroupsPerGroup,
};

// The values that the active lanes of a simdgroup gave to one operation.
struct Exchange {
  const unsigned char* values;  // [width, kLargestValue]
  Bits64 active;                // a bit per lane
  unsigned lane;
  unsigned width;
};

constexpr unsigned kLargestValue = 64;
constexpr unsigned kMostLanes = 64;

// What a lane does wrong in an operation of its simdgroup.
enum class SimdFault : int { kInactiveLane, kNotAllLanes, kWidth };

struct Parameter {
  const char* name;
  int index;         // of the buffer, or of the threadgroup memory
  char space;        // 'd' device, 'c' constant, 't' threadgroup
  bool reads_only;   // const
  unsigned element;  // bytes of what it points to
  unsigned scalar;   // bytes of the smallest part that a kernel accesses by this type
};

struct Kernel {
  const char* name;
  void (*call)();
  const Parameter* parameters;
  unsigned parameter_count;
};

// Index of a buffer or of threadgroup memory -> its address.
void* buffer(int index);
void* group_memory(int index);
// The memory of a threadgroup variable, by its number in the source.
void* group_variable(int number, const char* name, unsigned long size, unsigned element,
                     unsigned scalar, int line);
unsigned position(Place place, int dimension);

void group_barrier(int flags, int line);
void simd_barrier(int flags, int line);
// Waits for the other lanes; ``operation`` distinguishes operations on one line.
const Exchange* exchange(const void* value, unsigned size, int operation, int line);
void simd_fault(SimdFault fault, const char* function, int line);

void atomic_access(const volatile void* address, unsigned size, bool writes);
// Whether a weak compare-and-exchange fails this time although the values are equal.
bool fails_spuriously();
void overflowed(const char* type, float value);

}  // namespace torchyard_metal

#define TORCHYARD_INLINE inline __attribute__((always_inline))
#define TORCHYARD_UNCHECKED __attribute__((no_sanitize("thread", "address", "undefined")))
