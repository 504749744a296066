// Makes a ForwardKernel of the templates, for one Format.
#pragma once

#include "attention/attention.h"
#include "attention/pack-inl.h"
#include "attention/rows-inl.h"

namespace torchyard {
namespace {

template <class Format>
size_t packed_panel_bytes(const ForwardArgs& args) {
  return static_cast<size_t>(Layout<Format>(args).panel_words()) * sizeof(uint32_t);
}

}  // namespace
}  // namespace torchyard

#define TORCHYARD_DEFINE_FORWARD(name, isa, dtype, required, ...) \
  extern const ForwardKernel name;                                \
  const ForwardKernel name = {#name,                              \
                              isa,                                \
                              DType::dtype,                       \
                              required,                           \
                              Rows<__VA_ARGS__>::kTileRows,       \
                              packed_panel_bytes<__VA_ARGS__>,    \
                              Rows<__VA_ARGS__>::scratch_bytes,   \
                              Packer<__VA_ARGS__>::run,           \
                              Rows<__VA_ARGS__>::run};
