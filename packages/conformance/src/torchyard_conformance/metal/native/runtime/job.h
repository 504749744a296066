// What one run is to do: read from a text file, its memory from and to files beside it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../shim/interface.h"
#include "memory/memory.h"

namespace torchyard_metal {

struct Buffer {
  int region;
  size_t offset;
};

struct Job {
  std::string folder;
  std::string kernel;
  uint32_t grid[3] = {1, 1, 1};     // threadgroups
  uint32_t threads[3] = {1, 1, 1};  // of a threadgroup
  uint32_t width = 32;
  uint64_t seed = 0;
  bool coarse = true;  // whether a unit of shadow memory may stand for several bytes
  std::map<int, Buffer> buffers;
  std::map<int, size_t> group_memory;

  uint32_t group_size() const { return threads[0] * threads[1] * threads[2]; }
  uint64_t group_count() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
};

// Reads a job, and its regions' contents from another folder; exits with a message where the file
// is not understood.
Job read_job(const std::string& folder, const std::string& inputs, Memory& memory);
void write_outputs(const Job& job, Memory& memory);

}  // namespace torchyard_metal
