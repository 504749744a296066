// Makes a RecurrentKernel of the templates, for one Format.
#pragma once

#include "base/isa/kernel_table.h"
#include "recurrent/pack-inl.h"
#include "recurrent/step-inl.h"

// The initialiser of the RecurrentKernel recurrent_<shape>_<set>.
#define TORCHYARD_RECURRENT(set, shape, dtype, ...) \
  {"recurrent_" #shape "_" #set,                    \
   #set,                                            \
   DType::dtype,                                    \
   isa::set.required,                               \
   __VA_ARGS__::Isa::kLanes,                        \
   __VA_ARGS__::kPair,                              \
   1,                                               \
   sizeof(__VA_ARGS__::Operand),                    \
   sizeof(__VA_ARGS__::Element),                    \
   __VA_ARGS__::kLaneBytes,                         \
   RecurrentPacker<__VA_ARGS__>::run,               \
   Product<__VA_ARGS__>::run,                       \
   Step<__VA_ARGS__>::run,                          \
   RecurrentPacker<__VA_ARGS__>::to_operands,       \
   RecurrentPacker<__VA_ARGS__>::from_operands,     \
   RecurrentPacker<__VA_ARGS__>::widen,             \
   RecurrentPacker<__VA_ARGS__>::narrow}
