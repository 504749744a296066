#include "memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shadow.h"

#if TORCHYARD_ADDRESS
#include <sanitizer/asan_interface.h>
#endif

namespace torchyard_metal {
namespace {

#if TORCHYARD_ADDRESS
constexpr size_t kGap = Memory::kChunk;
#else
// Wide, so that a wrong stride is still found to be nearest to the buffer that was meant.
constexpr size_t kGap = 64 * Memory::kChunk;
#endif

size_t whole_chunks(size_t size) {
  return (size + Memory::kChunk) / Memory::kChunk * Memory::kChunk;
}

unsigned char* reserve(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("memory of buffers");
    std::abort();
  }
  return static_cast<unsigned char*>(memory);
}

Cell* cells_of(const Region& region) {
  const size_t count = (region.size + region.unit - 1) / region.unit;
  return reinterpret_cast<Cell*>(reserve((count + 1) * sizeof(Cell)));
}

}  // namespace

Region& Memory::add(size_t size) {
  auto* region = new Region;
  region->id = static_cast<int>(regions_.size());
  region->size = size;
  regions_.push_back(region);
  return *region;
}

void Memory::lay_out() {
  std::vector<size_t> starts;
  size_t at = 0;
  for (const Region* region : regions_) {
    at += kGap;
    starts.push_back(at);
    at += whole_chunks(region->size + region->skew) + kGap;
  }
  variables_at_ = at;
  size_ = at + kMostVariables * 3 * kChunk;
  unsigned char* memory = reserve(size_ + kChunk);
  base_ = memory + (kChunk - reinterpret_cast<uintptr_t>(memory) % kChunk) % kChunk;
  owners_.assign(size_ / kChunk, nullptr);
  for (size_t i = 0; i < regions_.size(); i++) {
    Region& region = *regions_[i];
    region.base = base_ + starts[i] + region.skew;
    own(region, starts[i] - kGap, starts[i] + whole_chunks(region.size + region.skew) + kGap);
  }
}

void Memory::allocate_cells() {
  for (Region* region : regions_) region->cells = cells_of(*region);
}

Region& Memory::variable(unsigned number, const std::string& name, size_t size, unsigned element,
                         unsigned unit) {
  Region*& found = variables_[number];
  if (found) return *found;
  found = new Region;
  found->id = -1 - static_cast<int>(number);
  found->name = name;
  found->space = 't';
  found->size = size;
  found->element = element;
  found->unit = unit;
  found->initialised = false;
  const size_t start = variables_at_ + (3 * number + 1) * kChunk;
  found->base = base_ + start;
  found->cells = cells_of(*found);
  variables_size_ += size;
  own(*found, start - kChunk, start + 2 * kChunk);
  std::memset(found->base, 0xff, size);
  return *found;
}

void Memory::clear_variables() {
  // Not a number, of every floating-point type.
  for (Region* region : variables_)
    if (region) std::memset(region->base, 0xff, region->size);
}

Region* Memory::closest(const void* address) const {
  const auto* at = static_cast<const unsigned char*>(address);
  Region* best = nullptr;
  size_t least = ~size_t{0};
  for (Region* region : regions_) {
    const size_t distance = at < region->base
                                ? static_cast<size_t>(region->base - at)
                                : static_cast<size_t>(at - region->base) - region->size;
    if (distance < least) least = distance, best = region;
  }
  return best;
}

void Memory::own(Region& region, size_t from, size_t to) {
  for (size_t at = from; at < to; at += kChunk) owners_[at / kChunk] = &region;
  poison(region, from, to);
}

void Memory::poison(const Region& region, size_t from, size_t to) const {
#if TORCHYARD_ADDRESS
  ASAN_POISON_MEMORY_REGION(base_ + from, static_cast<size_t>(region.base - base_) - from);
  // The last granule of 8 bytes may belong to both: memory that is poisoned as a whole, and then
  // freed as far as the region goes, has the exact bound.
  ASAN_POISON_MEMORY_REGION(region.base, to - static_cast<size_t>(region.base - base_));
  ASAN_UNPOISON_MEMORY_REGION(region.base, region.size);
#else
  (void)region, (void)from, (void)to;
#endif
}

}  // namespace torchyard_metal
