// Makes a ForwardKernel of the templates, for one Format.
#pragma once

#include "attention/attention.h"
#include "attention/forward/rows-inl.h"
#include "attention/tile/pack-inl.h"
#include "base/isa/kernel_table.h"

namespace torchyard {
namespace {

template <class Format>
size_t packed_panel_bytes(const ForwardArgs& args) {
  return static_cast<size_t>(Layout<Format>(args).panel_words()) * sizeof(uint32_t);
}

}  // namespace
}  // namespace torchyard

// The initialiser of the ForwardKernel attention_forward_<shape>_<set>.
#define TORCHYARD_FORWARD(set, shape, dtype, ...) \
  {"attention_forward_" #shape "_" #set,          \
   #set,                                          \
   DType::dtype,                                  \
   isa::set.required,                             \
   Rows<__VA_ARGS__>::kTileRows,                  \
   packed_panel_bytes<__VA_ARGS__>,               \
   Rows<__VA_ARGS__>::scratch_bytes,              \
   Packer<__VA_ARGS__>::run,                      \
   Rows<__VA_ARGS__>::run}
