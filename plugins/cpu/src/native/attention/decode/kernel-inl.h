// Makes a DecodeKernel of the templates, for one Format.
#pragma once

#include <cstddef>

#include "attention/decode/decode-inl.h"
#include "attention/decode/state-inl.h"
#include "base/isa/kernel_table.h"

namespace torchyard {
namespace {

template <class Format>
size_t decode_scratch(const ForwardArgs& args) {
  return Decode<Format, StridedRows>::scratch_bytes(args);
}

template <class Format>
void decode_split(const ForwardArgs& args, const DecodeJob& job) {
  if (args.pages == nullptr) {
    Decode<Format, StridedRows>::split(args, job);
  } else {
    Decode<Format, PagedRows>::split(args, job);
  }
}

}  // namespace
}  // namespace torchyard

// The initialiser of the DecodeKernel attention_decode_<shape>_<set>.
#define TORCHYARD_DECODE(set, shape, dtype, ...) \
  {"attention_decode_" #shape "_" #set,          \
   #set,                                         \
   DType::dtype,                                 \
   isa::set.required,                            \
   DecodeState<__VA_ARGS__>::floats,             \
   decode_scratch<__VA_ARGS__>,                  \
   decode_split<__VA_ARGS__>,                    \
   DecodeState<__VA_ARGS__>::finish}
