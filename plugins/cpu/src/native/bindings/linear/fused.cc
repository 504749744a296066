// linear's calls with functions that are served without Python's help: see
// torchyard_cpu/_native.pyi, DirectFused.
#include <cstring>
#include <new>

#include "bindings/direct.h"
#include "bindings/direct_type.h"
#include "bindings/linear/seen.h"
#include "bindings/programs/arguments.h"
#include "programs/dispatch.h"

namespace torchyard {

namespace {

// Over what a captured tensor is spread: torchyard_kernels.linear.contract.Spread, in its order.
enum Spread : int64_t { kScalar, kOne, kRow, kColumn, kFull };

struct Kind {
  int64_t dtype;  // of TensorDType
  int64_t spread;
};

// A function before or after the product; without a program there is none.
struct Fused {
  PyObject* program;  // what the holder's steps lie in
  ProgramHolder holder;
  int64_t inputs;
  int64_t captured;
  Kind kinds[kMaxProgramPlaces];
};

struct DirectFused {
  PyObject_HEAD;
  Torch torch;
  const LinearKernel* kernel;
  const ProgramKernel* programs;
  int64_t dtype;   // of DType
  int64_t result;  // of TensorDType
  Fused before, after;
  Admitted<LinearAsked> admitted;
};

// Where a tensor lies that is spread over the rows of x and some columns; false where its shape
// does not fit, where its rows lie in no single stride, or where it is spread in another way.
bool place_of(const SeenTensor& seen, const SeenTensor& x, int64_t columns, int64_t spread,
              ProgramPlace* out) {
  *out = {static_cast<char*>(seen.data), 0, 0};
  if (seen.dim > x.dim) return false;
  if (seen.dim == 0) return spread == kScalar;
  const int64_t last = seen.sizes[seen.dim - 1];
  if (last != 1 && last != columns) return false;
  bool rows = false;
  int64_t step = -1;  // from the rows so far to the next
  for (int64_t d = x.dim - 2; d >= 0; --d) {
    const int64_t own = d - (x.dim - seen.dim);
    const int64_t size = own < 0 ? 1 : seen.sizes[own];
    if (size != 1 && size != x.sizes[d]) return false;
    if (x.sizes[d] == 1) continue;
    const int64_t stride = size == 1 ? 0 : seen.strides[own];
    if (size != 1) rows = true;
    if (step < 0) {
      out->row = stride;
    } else if (stride != step) {
      return false;
    }
    step = stride * x.sizes[d];
  }
  if (last != 1) out->column = seen.strides[seen.dim - 1];
  return spread == (rows ? last != 1 ? kFull : kRow : last != 1 ? kColumn : kOne);
}

// Reads what a function captured; false, perhaps with an exception set, where it is not served.
bool place_captured(const DirectFused& direct, const Fused& fused, PyObject* captured,
                    const SeenTensor& x, int64_t columns, LinearFunction* out) {
  if (!PyTuple_Check(captured) || PyTuple_Size(captured) != fused.captured) return false;
  for (int64_t i = 0; i < fused.captured; ++i) {
    SeenTensor seen;
    if (!direct.torch.see(PyTuple_GetItem(captured, i), &seen) ||
        direct.torch.dtype_index(seen.dtype) != fused.kinds[i].dtype ||
        !place_of(seen, x, columns, fused.kinds[i].spread, &out->places[fused.inputs + i])) {
      return false;
    }
  }
  out->kernel = direct.programs;
  out->program = &fused.holder.program;
  out->inputs = static_cast<int>(fused.inputs);
  return true;
}

// serve(x, weight, form, bias, captured before, captured after)
PyObject* serve(PyObject* self, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 6) {
    PyErr_Format(PyExc_TypeError, "serve: expected 6 arguments, got %zd", argc);
    return nullptr;
  }
  const DirectFused& direct = *reinterpret_cast<DirectFused*>(self);
  const Torch& torch = direct.torch;
  SeenLinear call;
  LinearFunction before, after;
  bool served = see_linear(torch, argv[0], argv[1], argv[2], argv[3], &call) &&
                call.dtype == direct.dtype && direct.admitted.holds(call.asked);
  if (served && direct.before.program != nullptr) {
    call.args.prologue = &before;
    served = place_captured(direct, direct.before, argv[4], call.x, call.args.depth, &before);
  }
  if (served && direct.after.program != nullptr) {
    after.inputs = static_cast<int>(direct.after.inputs);
    call.args.epilogue = &after;
    const int64_t columns = call.args.columns();
    served = call.args.outputs % after.inputs == 0 &&
             !(call.args.weight.packed && after.inputs == 2 && columns % kPanelColumns != 0) &&
             place_captured(direct, direct.after, argv[5], call.x, columns, &after);
  }
  if (!served) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_RETURN_NONE;
  }
  const int32_t dtype = torch.dtype(static_cast<TensorDType>(direct.result));
  void* out = make_linear(torch, call, dtype, &call.args.out);
  if (out == nullptr) Py_RETURN_NONE;
  return give_linear(torch, *direct.kernel, call.args, out);
}

PyObject* admit(PyObject* self, PyObject* tuple) {
  return admit_request<DirectFused, LinearAsked>(self, tuple, kLinearDTypes);
}

void dealloc(PyObject* self) {
  DirectFused* direct = reinterpret_cast<DirectFused*>(self);
  Py_XDECREF(direct->before.program);
  Py_XDECREF(direct->after.program);
  end_direct<DirectFused>(self);
}

PyMethodDef methods[] = {
    {"serve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(serve)), METH_FASTCALL,
     "Compute a call whose request was admitted; None for any other."},
    {"admit", admit, METH_O, "Serve calls that make this request from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"torchyard_cpu._native.DirectFused", sizeof(DirectFused), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PyTypeObject* type;

// `tuple` is (program, inputs, kinds), kinds a dtype and a spread of each captured tensor; or None.
bool read_fused(PyObject* tuple, int64_t most_inputs, Fused* out) {
  if (tuple == Py_None) return true;
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 3) {
    PyErr_SetString(PyExc_TypeError, "function: expected a tuple of 3");
    return false;
  }
  PyObject* program = PyTuple_GetItem(tuple, 0);
  const Kind* kinds;
  out->inputs = PyLong_AsLongLong(PyTuple_GetItem(tuple, 1));
  if ((out->inputs == -1 && PyErr_Occurred() != nullptr) || !read_program(program, &out->holder) ||
      !read_records(PyTuple_GetItem(tuple, 2), &kinds, &out->captured)) {
    return false;
  }
  const Program& read = out->holder.program;
  bool fits = out->inputs >= 1 && out->inputs <= most_inputs && read.result_count == 1 &&
              read.operand_count == out->inputs + out->captured;
  for (int64_t i = 0; fits && i < out->captured; ++i) {
    fits = kinds[i].dtype >= 0 && kinds[i].dtype < kTensorDTypes && kinds[i].spread >= kScalar &&
           kinds[i].spread <= kFull;
    out->kinds[i] = kinds[i];
  }
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "function: expected a kind of each captured tensor");
    return false;
  }
  Py_INCREF(program);
  out->program = program;
  return true;
}

// direct_fused(kernels, programs, dtype, result, before, after, probe, handle, tensor type,
//              parameter type, wrap, takes)
PyObject* direct_fused(PyObject*, PyObject* const* argv, Py_ssize_t argc) {
  if (argc != 12) {
    PyErr_Format(PyExc_TypeError, "direct_fused: expected 12 arguments, got %zd", argc);
    return nullptr;
  }
  const LinearKernel* kernels[kLinearDTypes];
  if (!read_linear_kernels(argv[0], kernels)) return nullptr;
  const ProgramKernel* programs = read_kernel(argv[1], find_program, "program_kernels");
  const int64_t dtype = PyLong_AsLongLong(argv[2]);
  const int64_t result = PyLong_AsLongLong(argv[3]);
  if (programs == nullptr || PyErr_Occurred() != nullptr) return nullptr;
  if (dtype < 0 || dtype >= kLinearDTypes || result < 0 || result >= kTensorDTypes) {
    PyErr_SetString(PyExc_ValueError, "dtype, result: expected those of tensors");
    return nullptr;
  }
  DirectFused* direct = PyObject_New(DirectFused, type);
  if (direct == nullptr) return nullptr;
  new (&direct->torch) Torch();
  new (&direct->admitted) Admitted<LinearAsked>();
  direct->kernel = kernels[dtype];
  direct->programs = programs;
  direct->dtype = dtype;
  direct->result = result;
  direct->before.program = nullptr;
  direct->after.program = nullptr;
  const bool fits =
      read_fused(argv[4], 1, &direct->before) && read_fused(argv[5], 2, &direct->after);
  if (fits &&
      direct->torch.connect(argv[6], argv[7], argv[8], argv[9], argv[10], argv[11] == Py_True)) {
    return reinterpret_cast<PyObject*>(direct);
  }
  Py_DECREF(reinterpret_cast<PyObject*>(direct));
  if (!fits) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"direct_fused", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(direct_fused)),
     METH_FASTCALL, "Return a DirectFused, or None where torch lacks what it needs."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_linear_fused(PyObject* module) {
  return add_direct_type(module, &spec, "DirectFused", functions, &type);
}

}  // namespace torchyard
