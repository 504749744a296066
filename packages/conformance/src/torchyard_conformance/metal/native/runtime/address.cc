// What AddressSanitizer finds, which beside buffers knows the bounds of a thread's own arrays.

#if TORCHYARD_ADDRESS

#include <sanitizer/asan_interface.h>

#include <cstring>

#include "run.h"
#include "threads/group.h"

namespace {

using namespace torchyard_metal;

void on_error(const char* report) {
  if (!group || !group->is_running()) return;
  const void* address = __asan_get_report_address();
  const auto* counter = static_cast<const char*>(__asan_get_report_pc());
  // The report's first words: "ERROR: AddressSanitizer: stack-buffer-overflow on ...".
  static char kind[64] = "";
  const char* mark = "AddressSanitizer: ";
  if (const char* at = std::strstr(report, mark)) {
    std::strncpy(kind, at + std::strlen(mark), sizeof kind - 1);
    kind[std::strcspn(kind, " \n")] = 0;
  }
  report_at("out-of-bounds", address, static_cast<unsigned>(__asan_get_report_access_size()),
            site_of(counter + 1), kind);
  finish();
}

__attribute__((constructor)) void listen() { __asan_set_error_report_callback(on_error); }

}  // namespace

extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
         "detect_stack_use_after_return=0:use_sigaltstack=0:print_summary=0";
}

#endif
