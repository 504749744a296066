// Makes a RecurrentKernel of the templates, for one Format.
#pragma once

#include "recurrent/pack-inl.h"
#include "recurrent/step-inl.h"

#define TORCHYARD_DEFINE_RECURRENT(name, isa, dtype, required, ...)          \
  extern const RecurrentKernel name;                                         \
  const RecurrentKernel name = {#name,                                       \
                                isa,                                         \
                                DType::dtype,                                \
                                required,                                    \
                                __VA_ARGS__::Isa::kLanes,                    \
                                __VA_ARGS__::kPair,                          \
                                1,                                           \
                                sizeof(__VA_ARGS__::Operand),                \
                                sizeof(__VA_ARGS__::Element),                \
                                __VA_ARGS__::kLaneBytes,                     \
                                RecurrentPacker<__VA_ARGS__>::run,           \
                                Product<__VA_ARGS__>::run,                   \
                                Step<__VA_ARGS__>::run,                      \
                                RecurrentPacker<__VA_ARGS__>::to_operands,   \
                                RecurrentPacker<__VA_ARGS__>::from_operands, \
                                RecurrentPacker<__VA_ARGS__>::widen,         \
                                RecurrentPacker<__VA_ARGS__>::narrow};
