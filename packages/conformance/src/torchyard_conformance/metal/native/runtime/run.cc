#include "run.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "threads/group.h"

namespace torchyard_metal {

Memory memory;
Findings findings;
Shadow shadow(memory, findings);
Job job;

namespace {

uintptr_t image_start = 0, image_end = 0;

// The program's own segments, where its constants are.
int find_image(dl_phdr_info* info, size_t, void*) {
  image_start = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    if (end > image_end) image_end = end;
  }
  return 1;  // the first is the program
}

bool in_image(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return at >= image_start && at < image_end;
}

uintptr_t program_counter(void* context) {
#if defined(__linux__) && defined(__x86_64__)
  return static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
  return static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
  (void)context;
  return 0;
#endif
}

void on_signal(int number, siginfo_t* info, void* context) {
  if (!group || !group->is_running()) {
    std::fprintf(stderr, "signal %d outside of a kernel\n", number);
    _exit(3);
  }
  const uintptr_t counter = program_counter(context);
  const uintptr_t site = counter ? counter + 1 - image_start : 0;
  const bool stack = number == SIGSEGV && group->stacks().overflowed(info->si_addr);
  report_at(stack ? "stack-overflow" : "crash", nullptr, 0, site, strsignal(number));
  finish();
}

void catch_signals() {
  stack_t stack = {};
  stack.ss_size = 64 << 10;
  stack.ss_sp = std::malloc(stack.ss_size);
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
    sigaction(number, &action, nullptr);
}

}  // namespace

uintptr_t site_of(const void* return_address) {
  return reinterpret_cast<uintptr_t>(return_address) - image_start;
}

void check_access(const volatile void* address, unsigned size, bool writes, bool atomic,
                  uintptr_t site) {
  const void* at = const_cast<const void*>(address);
  if (memory.has(at)) {
    if (shadow.access(group->accessor(), at, size, writes, atomic, site)) return;
  } else if (group->stacks().has(at) || in_image(at)) {
    return;
  }
  // Far from everything: to go on would harm the run.
  report_at("out-of-bounds", at, size, site, writes ? "far write" : "far read");
  finish();
}

void report_at(const char* kind, const void* address, unsigned size, uintptr_t site,
               const char* text) {
  const Region* region = nullptr;
  if (address && !group->stacks().has(address) && !in_image(address))
    region = memory.has(address) ? memory.nearest(address) : memory.closest(address);
  Finding made;
  if (region) {
    const auto* at = static_cast<const unsigned char*>(address);
    made = shadow.finding(kind, group->accessor(), *region, at - region->base, size, site);
  } else {
    const Accessor by = group->accessor();
    made.kind = kind;
    made.site = site;
    made.who = {by.group, by.thread};
  }
  made.text = text;
  findings.add(made);
}

void finish() {
  write_outputs(job, memory);
  findings.write(job.folder + "/findings");
  _exit(0);
}

}  // namespace torchyard_metal

// Of the kernels' translation unit.
extern const torchyard_metal::Kernel torchyard_metal_kernels[];
extern const unsigned torchyard_metal_kernel_count;

namespace {

using namespace torchyard_metal;

const Kernel& chosen_kernel() {
  for (unsigned i = 0; i < torchyard_metal_kernel_count; i++)
    if (job.kernel == torchyard_metal_kernels[i].name) return torchyard_metal_kernels[i];
  std::fprintf(stderr, "no kernel %s\n", job.kernel.c_str());
  std::exit(2);
}

// What the kernel's parameters say of the regions.
void describe_regions(const Kernel& kernel) {
  for (Region* region : memory.regions()) region->written = false, region->unit = 4;
  for (unsigned i = 0; i < kernel.parameter_count; i++) {
    const Parameter& parameter = kernel.parameters[i];
    const auto found = job.buffers.find(parameter.index);
    if (parameter.space == 't' || found == job.buffers.end()) continue;
    Region& region = *memory.regions()[static_cast<size_t>(found->second.region)];
    region.name = parameter.name;
    region.element = parameter.element;
    region.written |= !parameter.reads_only;
    if (parameter.scalar < region.unit) region.unit = parameter.scalar;
    if (!job.coarse || found->second.offset % region.unit) region.unit = 1;
  }
}

}  // namespace

int main(int, char** arguments) {
  dl_iterate_phdr(find_image, nullptr);
  job = read_job(arguments[1], arguments[2], memory);
  const Kernel& kernel = chosen_kernel();
  describe_regions(kernel);
  memory.allocate_cells();
  catch_signals();
  static Group threads(job, findings, kernel.call);
  group = &threads;
  std::vector<uint64_t> order;
  const uint64_t count = job.group_count();
  uint64_t random = job.seed + 0x9e3779b97f4a7c15ull;
  for (uint64_t i = 0; i < count; i++) order.push_back(job.seed == 1 ? count - 1 - i : i);
  for (uint64_t i = count; job.seed > 1 && i > 1; i--) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    std::swap(order[i - 1], order[random % i]);
  }
  for (const uint64_t number : order) {
    memory.clear_variables();
    threads.run(number);
    if (findings.full()) break;
    if (job.coarse && shadow.too_coarse()) _exit(4);  // to be run with units of a byte
  }
  finish();
}
