#include "job.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "memory/shadow.h"

namespace torchyard_metal {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "job: %s\n", what.c_str());
  std::exit(2);
}

void read_file(const std::string& path, unsigned char* to, size_t size) {
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(size)))
    fail("cannot read " + std::to_string(size) + " bytes of " + path);
}

}  // namespace

Job read_job(const std::string& folder, const std::string& inputs, Memory& memory) {
  Job job;
  job.folder = folder;
  std::ifstream file(folder + "/job");
  if (!file) fail("no file job in " + folder);
  std::vector<bool> has_mask;
  std::string word;
  while (file >> word) {
    if (word == "kernel") {
      file >> job.kernel;
    } else if (word == "grid") {
      file >> job.grid[0] >> job.grid[1] >> job.grid[2];
    } else if (word == "threads") {
      file >> job.threads[0] >> job.threads[1] >> job.threads[2];
    } else if (word == "width") {
      file >> job.width;
    } else if (word == "seed") {
      file >> job.seed;
    } else if (word == "coarse") {
      file >> job.coarse;
    } else if (word == "region") {
      size_t size, skew;
      bool initialised, masked;
      file >> size >> skew >> initialised >> masked;
      Region& region = memory.add(size);
      region.skew = skew;
      region.initialised = initialised;
      has_mask.push_back(masked);
    } else if (word == "buffer") {
      int index;
      Buffer buffer;
      file >> index >> buffer.region >> buffer.offset;
      job.buffers[index] = buffer;
    } else if (word == "group") {
      int index;
      file >> index >> job.group_memory[index];
    } else {
      fail("unknown word " + word);
    }
    if (!file) fail("no value for " + word);
  }
  memory.lay_out();
  for (Region* region : memory.regions()) {
    const std::string path = inputs + "/region" + std::to_string(region->id);
    read_file(path, region->base, region->size);
    if (has_mask[static_cast<size_t>(region->id)]) {
      region->valid.resize(region->size);
      read_file(path + ".valid", region->valid.data(), region->size);
    }
  }
  return job;
}

void write_outputs(const Job& job, Memory& memory) {
  for (const Region* region : memory.regions()) {
    if (!region->written) continue;
    const std::string path = job.folder + "/region" + std::to_string(region->id);
    std::ofstream(path + ".out", std::ios::binary)
        .write(reinterpret_cast<const char*>(region->base),
               static_cast<std::streamsize>(region->size));
    // The last access that wrote each unit: its site, threadgroup and thread; groups count from 1.
    std::ofstream writers(path + ".writers", std::ios::binary);
    for (size_t unit = 0; unit < (region->size + region->unit - 1) / region->unit; unit++) {
      const Access& write = region->cells[unit].write;
      const uint64_t row[3] = {write.site, write.group, write.thread};
      writers.write(reinterpret_cast<const char*>(row), sizeof row);
    }
  }
}

}  // namespace torchyard_metal
