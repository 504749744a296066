// Makes a LinearKernel of the templates, for one Format.
#pragma once

#include "base/isa/kernel_table.h"
#include "linear/dots-inl.h"
#include "linear/item-inl.h"
#include "linear/linear.h"
#include "linear/turned-inl.h"

// The initialiser of the LinearKernel linear_<shape>_<set>.
#define TORCHYARD_LINEAR(set, shape, dtype, ...) \
  {"linear_" #shape "_" #set,                    \
   #set,                                         \
   DType::dtype,                                 \
   isa::set.required,                            \
   TileShape<typename __VA_ARGS__::Isa>::kRows,  \
   __VA_ARGS__::kPair,                           \
   words_of,                                     \
   LinearDots<__VA_ARGS__>::kMostRows,           \
   LinearPacker<__VA_ARGS__>::rows,              \
   LinearItems<__VA_ARGS__>::words,              \
   LinearItems<__VA_ARGS__>::run,                \
   LinearTurned<__VA_ARGS__>::words,             \
   LinearTurned<__VA_ARGS__>::run,               \
   LinearPacker<__VA_ARGS__>::dot_rows,          \
   LinearDots<__VA_ARGS__>::run,                 \
   nullptr}
