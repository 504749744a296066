// Makes a LinearKernel of the templates, for one Format.
#pragma once

#include "linear/dots-inl.h"
#include "linear/item-inl.h"
#include "linear/linear.h"
#include "linear/turned-inl.h"

#define TORCHYARD_DEFINE_LINEAR(name, isa, dtype, required, ...)          \
  extern const LinearKernel name;                                         \
  const LinearKernel name = {#name,                                       \
                             isa,                                         \
                             DType::dtype,                                \
                             required,                                    \
                             TileShape<typename __VA_ARGS__::Isa>::kRows, \
                             __VA_ARGS__::kPair,                          \
                             words_of,                                    \
                             LinearDots<__VA_ARGS__>::kMostRows,          \
                             LinearPacker<__VA_ARGS__>::rows,             \
                             LinearItems<__VA_ARGS__>::words,             \
                             LinearItems<__VA_ARGS__>::run,               \
                             LinearTurned<__VA_ARGS__>::words,            \
                             LinearTurned<__VA_ARGS__>::run,              \
                             LinearPacker<__VA_ARGS__>::dot_rows,         \
                             LinearDots<__VA_ARGS__>::run,                \
                             nullptr};
