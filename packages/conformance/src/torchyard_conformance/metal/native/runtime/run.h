// One run of a kernel: the state of the process, and its end.
#pragma once

#include <cstdint>

#include "findings.h"
#include "job.h"
#include "memory/memory.h"
#include "memory/shadow.h"

namespace torchyard_metal {

extern Memory memory;
extern Findings findings;
extern Shadow shadow;
extern Job job;

// Where in the program a return address is, counted from the beginning of its file.
uintptr_t site_of(const void* return_address);
// Checks one access of the thread that runs.
void check_access(const volatile void* address, unsigned size, bool writes, bool atomic,
                  uintptr_t site);
// A finding at an address of the thread that runs.
void report_at(const char* kind, const void* address, unsigned size, uintptr_t site,
               const char* text);
// Writes down what was found and computed until now, and ends the process.
[[noreturn]] void finish();

}  // namespace torchyard_metal

#define TORCHYARD_SITE site_of(__builtin_return_address(0))
