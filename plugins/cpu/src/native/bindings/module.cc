// The Python module: integers in, no tensor type, no torch. Stable ABI of Python 3.11.
//
// The signatures are in torchyard_cpu/_native.pyi. Nothing here throws: every failure is a Python
// exception set by the function that found it.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <initializer_list>

#include "attention/attention.h"
#include "attention/backward/backward.h"
#include "attention/decode/decode.h"
#include "attention/mask/mask.h"
#include "bindings/arguments.h"
#include "bindings/fast_paths.h"
#include "bindings/limits/methods.h"
#include "bindings/linear/methods.h"
#include "bindings/programs/methods.h"
#include "bindings/quantised/methods.h"
#include "bindings/recurrent/methods.h"
#include "bindings/tables.h"
#include "bindings/topk/methods.h"

namespace torchyard {
namespace {

// Checks the number of arguments of `function`.
bool takes(const char* function, Py_ssize_t expected, Py_ssize_t given) {
  if (given == expected) return true;
  PyErr_Format(PyExc_TypeError, "%s: expected %zd arguments, got %zd", function, expected, given);
  return false;
}

// Checks the same where the last argument may be left out.
bool takes_or_one_more(const char* function, Py_ssize_t expected, Py_ssize_t given) {
  return given == expected + 1 || takes(function, expected, given);
}

// Runs a kernel without the GIL.
template <class Args, class Kernel>
Status run(Status (*body)(const Args&, const Kernel&, int, bool), const Args& args,
           const Kernel& kernel, const RunArguments& with) {
  Status status;
  Py_BEGIN_ALLOW_THREADS;
  status = body(args, kernel, with.threads, with.poison);
  Py_END_ALLOW_THREADS;
  return status;
}

// Runs a forward or decode kernel: their arguments are the same.
template <class Kernel>
PyObject* attend(const char* function, PyObject* const* argv, Py_ssize_t argc,
                 const torchyard::KernelTable<Kernel>& table, const char* listing,
                 bool (*suits)(const ForwardArgs&),
                 Status (*body)(const ForwardArgs&, const Kernel&, int, bool)) {
  constexpr Py_ssize_t kArguments = kCallArguments + 5;
  if (!takes_or_one_more(function, kArguments, argc)) return nullptr;
  const Kernel* kernel = read_kernel(argv[0], table, listing);
  if (kernel == nullptr) return nullptr;
  PyObject* const* more = argv + 1 + kCallArguments;
  ForwardArgs args;
  MaskBlocks mask;
  ScoreProgram score;
  torchyard::ScoreFailure failure = {-1, 0};
  RunArguments with;
  Pages pages;
  if (!read_call(argv + 1, &args, &mask) || !read_address(more[1], &args.max_scores) ||
      !read_run(more + 2, &with)) {
    return nullptr;
  }
  if (argc > kArguments && !read_pages(argv[kArguments], &args, &pages)) return nullptr;
  if (!check_mask(args)) return nullptr;
  if (suits != nullptr && !suits(args)) {
    PyErr_Format(PyExc_ValueError,
                 "dims: expected at most %d query rows per key head, got %lld heads of %lld rows "
                 "for %lld",
                 torchyard::kMaxDecodeRows, static_cast<long long>(args.query_heads),
                 static_cast<long long>(args.query_rows), static_cast<long long>(args.key_heads));
    return nullptr;
  }
  if (more[0] != Py_None) {
    if (!read_score(more[0], &score)) return nullptr;
    score.failure = &failure;
    args.score = &score;
  }
  const Status status = run(body, args, *kernel, with);
  if (status == Status::kOutOfMemory) return PyErr_NoMemory();
  if (status == Status::kIndexOutOfRange) return index_error(score);
  Py_RETURN_NONE;
}

PyObject* attention_forward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  return attend<ForwardKernel>("attention_forward", argv, argc, torchyard::kForwardKernels,
                               "kernels", nullptr, torchyard::attention_forward);
}

PyObject* attention_decode(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  return attend<DecodeKernel>("attention_decode", argv, argc, torchyard::kDecodeKernels,
                              "decode_kernels", torchyard::suits_decode,
                              torchyard::attention_decode);
}

PyObject* attention_backward(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (!takes("attention_backward", kCallArguments + 10, argc)) return nullptr;
  const BackwardKernel* kernel =
      read_kernel(argv[0], torchyard::kBackwardKernels, "backward_kernels");
  if (kernel == nullptr) return nullptr;
  PyObject* const* more = argv + 1 + kCallArguments;
  BackwardArgs args;
  MaskBlocks mask;
  ScoreProgram score;
  ScoreGradient score_gradient;
  ScoreFailure failure = {-1, 0};
  float* grad_lse;
  RunArguments with;
  if (!read_call(argv + 1, &args.call, &mask) || !check_mask(args.call) ||
      !read_tensor(more[0], "grad_out", &args.grad_out) || !read_address(more[1], &grad_lse) ||
      !read_output(more[2], "grad_query", &args.grad_query) ||
      !read_output(more[3], "grad_key", &args.grad_key) ||
      !read_output(more[4], "grad_value", &args.grad_value) || !read_run(more + 7, &with)) {
    return nullptr;
  }
  args.grad_lse = grad_lse;
  args.score_gradient = nullptr;
  if (more[5] != Py_None) {
    if (!read_score(more[5], &score) || !read_score_gradient(more[6], score, &score_gradient)) {
      return nullptr;
    }
    score.failure = &failure;
    args.call.score = &score;
    args.score_gradient = &score_gradient;
  }
  const Status status = run(torchyard::attention_backward, args, *kernel, with);
  if (status == Status::kOutOfMemory) return PyErr_NoMemory();
  if (status == Status::kIndexOutOfRange) return index_error(score);
  Py_RETURN_NONE;
}

PyObject* select_kernel(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  return select_name("select_kernel", argv, argc, torchyard::kForwardKernels);
}

PyObject* select_decode(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  return select_name("select_decode", argv, argc, torchyard::kDecodeKernels);
}

PyObject* select_backward_kernel(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  return select_name("select_backward_kernel", argv, argc, torchyard::kBackwardKernels);
}

PyObject* cpu_features(PyObject*, PyObject*) { return feature_names(torchyard::detect_features()); }

PyObject* slow_bf16_pairs(PyObject*, PyObject*) {
  return PyBool_FromLong(torchyard::has_slow_bf16_pairs());
}

PyObject* instruction_sets(PyObject*, PyObject*) {
  const Py_ssize_t count = sizeof(torchyard::kInstructionSets) / sizeof(torchyard::InstructionSet);
  PyObject* rows = PyTuple_New(count);
  for (Py_ssize_t i = 0; rows != nullptr && i < count; ++i) {
    const torchyard::InstructionSet& set = torchyard::kInstructionSets[i];
    PyObject* required = feature_names(set.required);
    PyObject* row = required == nullptr ? nullptr : Py_BuildValue("(sN)", set.name, required);
    if (row == nullptr || PyTuple_SetItem(rows, i, row) != 0) Py_CLEAR(rows);
  }
  return rows;
}

PyObject* kernels(PyObject*, PyObject*) { return kernel_table(torchyard::kForwardKernels); }

PyObject* decode_kernels(PyObject*, PyObject*) { return kernel_table(torchyard::kDecodeKernels); }

PyObject* backward_kernels(PyObject*, PyObject*) {
  return kernel_table(torchyard::kBackwardKernels);
}

PyMethodDef methods[] = {
    {"instruction_sets", instruction_sets, METH_NOARGS,
     "Return (name, features) of each instruction set that kernels are compiled for, best first."},
    {"attention_forward", erased(attention_forward), METH_FASTCALL,
     "Run an attention forward kernel on raw addresses."},
    {"attention_decode", erased(attention_decode), METH_FASTCALL,
     "Run an attention decode kernel on raw addresses."},
    {"select_decode", erased(select_decode), METH_FASTCALL,
     "Return the name of the attention decode kernel for a dtype and a feature set."},
    {"decode_kernels", decode_kernels, METH_NOARGS,
     "Return (name, dtype, isa, required features) of each attention decode kernel."},
    {"attention_backward", erased(attention_backward), METH_FASTCALL,
     "Run an attention backward kernel on raw addresses."},
    {"select_kernel", erased(select_kernel), METH_FASTCALL,
     "Return the name of the attention forward kernel for a dtype and a feature set."},
    {"cpu_features", cpu_features, METH_NOARGS,
     "Return the names of the usable instruction set extensions."},
    {"has_slow_bf16_pairs", slow_bf16_pairs, METH_NOARGS,
     "Return whether products of bfloat16 pairs are slower than float32's here."},
    {"kernels", kernels, METH_NOARGS,
     "Return (name, dtype, isa, required features) of each attention forward kernel."},
    {"score_ops", score_ops, METH_NOARGS, "Return the names of the steps of score programs."},
    {"select_backward_kernel", erased(select_backward_kernel), METH_FASTCALL,
     "Return the name of the attention backward kernel for a dtype and a feature set."},
    {"backward_kernels", backward_kernels, METH_NOARGS,
     "Return (name, dtype, isa, required features) of each attention backward kernel."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_native",
                          "Native CPU kernels.",
                          0,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace torchyard

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&torchyard::definition);
  if (module == nullptr) return nullptr;
  if (PyModule_AddIntConstant(module, "MAX_HEAD_DIM", torchyard::kMaxHeadDim) != 0 ||
      PyModule_AddIntConstant(module, "MAX_DECODE_ROWS", torchyard::kMaxDecodeRows) != 0 ||
      torchyard::add_fast_paths(module) != 0 || torchyard::add_limits(module) != 0 ||
      torchyard::add_linear(module) != 0 || torchyard::add_programs(module) != 0 ||
      torchyard::add_quantised(module) != 0 || torchyard::add_recurrent(module) != 0 ||
      torchyard::add_topk(module) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
