// Where buffers and threadgroup variables are: one range of addresses, with gaps between regions,
// so that an access outside of a region is found and named, and harms nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchyard_metal {

struct Cell;

struct Region {
  int id = 0;
  std::string name;
  char space = 'd';  // 'd' device and constant memory, 't' threadgroup memory
  unsigned char* base = nullptr;
  size_t size = 0;
  size_t skew = 0;  // bytes by which the buffer's address misses a large power of 2
  unsigned element = 1;
  unsigned unit = 4;        // bytes that one cell of shadow memory stands for
  bool initialised = true;  // before the launch
  bool written = true;      // whether a kernel may write it: what it only reads cannot race
  // A byte per byte of the region: whether it belongs to an element of a buffer; empty: all do.
  std::vector<unsigned char> valid;
  Cell* cells = nullptr;
};

class Memory {
 public:
  static constexpr size_t kChunk = 64 << 10;
  static constexpr unsigned kMostVariables = 64;

  // Adds a region of device memory; all are added before ``lay_out``.
  Region& add(size_t size);
  void lay_out();
  // Makes shadow memory, in the units that the regions have by then.
  void allocate_cells();
  // Returns a threadgroup variable's region, which is made at first.
  Region& variable(unsigned number, const std::string& name, size_t size, unsigned element,
                   unsigned unit);
  // Makes threadgroup memory hold nothing, as at the start of a threadgroup.
  void clear_variables();

  bool has(const void* address) const {
    return static_cast<size_t>(static_cast<const unsigned char*>(address) - base_) < size_;
  }
  // Of an address that ``has`` is true of, the region that it is in or nearest to; null: none is.
  Region* nearest(const void* address) const {
    return owners_[static_cast<size_t>(static_cast<const unsigned char*>(address) - base_) /
                   kChunk];
  }
  // Of any other address, the region at the least distance.
  Region* closest(const void* address) const;
  std::vector<Region*>& regions() { return regions_; }
  size_t variables_size() const { return variables_size_; }

 private:
  void own(Region& region, size_t from, size_t to);
  void poison(const Region& region, size_t from, size_t to) const;

  unsigned char* base_ = nullptr;
  size_t size_ = 0, variables_at_ = 0, variables_size_ = 0;
  std::vector<Region*> regions_, owners_;
  Region* variables_[kMostVariables] = {};
};

}  // namespace torchyard_metal
