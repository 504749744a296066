// The handlers of -fsanitize=undefined: each call becomes a finding, and the run goes on. Each
// receives a place in the source, which of an inlined function is the function's; the site in the
// program leads to the caller's line too.

#include <cstdint>

#include "run.h"

namespace {

using namespace torchyard_metal;

struct SourceLocation {
  const char* file;
  uint32_t line, column;
};

struct TypeMismatch {
  SourceLocation location;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;
};

void report(const char* what, uintptr_t site) { report_at("undefined", nullptr, 0, site, what); }

}  // namespace

extern "C" {
void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t pointer) {
  const uintptr_t alignment = uintptr_t{1} << data->log_alignment;
  const auto* at = reinterpret_cast<const void*>(pointer);
  if (!pointer)
    report("null pointer", TORCHYARD_SITE);
  else if (pointer & (alignment - 1))
    report_at("misaligned", at, static_cast<unsigned>(alignment), TORCHYARD_SITE, "");
}
#define HANDLER(name, parameters, what) \
  void __ubsan_handle_##name parameters { report(what, TORCHYARD_SITE); }
#define POINTERS2 (void*, void*)
#define POINTERS3 (void*, void*, void*)
HANDLER(add_overflow, POINTERS3, "signed integer overflow: addition")
HANDLER(sub_overflow, POINTERS3, "signed integer overflow: subtraction")
HANDLER(mul_overflow, POINTERS3, "signed integer overflow: multiplication")
HANDLER(negate_overflow, POINTERS2, "signed integer overflow: negation")
HANDLER(divrem_overflow, POINTERS3, "division by zero")
HANDLER(out_of_bounds, POINTERS2, "index out of the bounds of an array")
HANDLER(load_invalid_value, POINTERS2, "a value that its type does not have")
HANDLER(pointer_overflow, POINTERS3, "pointer arithmetic that wraps")
HANDLER(vla_bound_not_positive, POINTERS2, "an array of no positive size")
HANDLER(missing_return, (void*), "the end of a function that returns a value")
HANDLER(builtin_unreachable, (void*), "unreachable code")
HANDLER(invalid_builtin, (void*), "a function of an argument that it is not defined for")
}
