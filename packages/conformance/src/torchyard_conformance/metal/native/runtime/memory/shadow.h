// Which threads accessed a unit of memory, and since which barrier.
#pragma once

#include <cstdint>

#include "../findings.h"
#include "memory.h"

namespace torchyard_metal {

struct Access {
  uint32_t group = 0;  // number of the threadgroup and 1; 0: none
  uint32_t epoch = 0;  // barriers of the threadgroup that ordered this memory
  uint32_t simd_epoch = 0;
  uint16_t thread = 0;
  uint16_t atomic = 0;
  uint64_t site = 0;
};

// Of the reads since the last write, as many as a later write must be compared with: the last one,
// and the last ones by another thread of its simdgroup, by another simdgroup, by another
// threadgroup.
struct Cell {
  Access write;
  Access reads[4];
};

// The thread that accesses memory, as the scheduler knows it.
struct Accessor {
  uint32_t group = 0;
  uint32_t thread = 0;
  uint32_t width = 32;
  // [device, threadgroup]
  uint32_t epochs[2] = {};
  uint32_t simd_epochs[2] = {};
};

class Shadow {
 public:
  Shadow(Memory& memory, Findings& findings) : memory_(memory), findings_(findings) {}

  // One access inside of ``memory``. False: it is outside of every region.
  bool access(const Accessor& by, const void* address, unsigned size, bool writes, bool atomic,
              uintptr_t site);
  Finding finding(const char* kind, const Accessor& by, const Region& region, long long offset,
                  unsigned size, uintptr_t site) const;
  // Whether a part of a unit was accessed: the launch is then to be done again with units of a
  // byte.
  bool too_coarse() const { return too_coarse_; }

 private:
  void read(const Accessor& by, Region& region, size_t unit, unsigned size, const Access& now);
  void write(const Accessor& by, Region& region, size_t unit, unsigned size, const Access& now);
  void conflict(const Accessor& by, const Region& region, size_t unit, unsigned size,
                const Access& now, const Access& before, const char* how);

  Memory& memory_;
  Findings& findings_;
  bool too_coarse_ = false;
};

}  // namespace torchyard_metal
