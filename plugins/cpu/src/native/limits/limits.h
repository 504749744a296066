// The machine's own limits: what a loop of nothing but one operation reaches.
#pragma once

#include <cstddef>

#include "base/isa/kernel_table.h"

namespace torchyard {

// A loop of multiply-accumulates of one instruction set.
struct ArithmeticLoop {
  const char* name;
  const char* dtype;
  FeatureSet required;
  // Runs once and returns the operations that it did: two for each product.
  double (*run)();
};

extern const KernelTable<ArithmeticLoop> kArithmeticLoops;

// Returns operations per second of the best of several rounds: that limit is not lowered by whoever
// else uses the machine.
double operations_per_second(const ArithmeticLoop& loop, int threads, double seconds);

// Returns bytes read from memory per second in the median round, or 0 where there is no memory to
// read: unlike arithmetic, the rate of memory varies from round to round.
double bytes_read_per_second(int threads, double seconds);

// Likewise of words that are read, changed and written back, of which each byte counts twice.
double bytes_updated_per_second(int threads, double seconds);

}  // namespace torchyard
