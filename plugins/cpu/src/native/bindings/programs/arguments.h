// Reads programs: what torchyard_cpu._programs.program encodes.
//
// Each function returns false with a Python exception set where an argument does not fit.
#pragma once

#include "bindings/arguments.h"
#include "programs/program.h"

namespace torchyard {

// A program and what it points to; its steps stay borrowed from their bytes.
struct ProgramHolder {
  Program program;
  Element operands[kMaxProgramPlaces];
  ProgramResult results[kMaxProgramPlaces];
};

inline bool fits_program(const Program& program, int64_t operand, int64_t shape) {
  return operand >= 0 && (operand & 3) <= shape && operand >> 2 < program.slots[operand & 3];
}

// Whether steps stay within their slots and operands.
inline bool steps_fit(const Program& program, Py_ssize_t length) {
  int64_t total = 0;
  for (int shape = 0; shape < kValueShapes; ++shape) {
    if (program.counts[shape] < 0 || program.counts[shape] > kMaxProgramSteps ||
        program.slots[shape] < 0 || program.slots[shape] > 2 * kMaxProgramSteps) {
      return false;
    }
    total += program.counts[shape];
  }
  if (length != total * static_cast<Py_ssize_t>(sizeof(ProgramStep))) return false;
  const ProgramStep* step = program.steps;
  for (int shape = 0; shape < kValueShapes; ++shape) {
    for (int64_t i = 0; i < program.counts[shape]; ++i, ++step) {
      const ProgramOp op = step->op;
      const bool loads = op >= ProgramOp::load_float32 && op <= ProgramOp::load_bool;
      if (op < ProgramOp::constant_f || op > ProgramOp::sqrt_mul_add_f ||
          (op >= ProgramOp::index_i && op <= ProgramOp::index_l) ||
          (op >= ProgramOp::gather_float32 && op <= ProgramOp::gather_bool) || step->out < 0 ||
          step->out >= program.slots[shape] ||
          (loads && (step->data < 0 || step->data >= program.operand_count))) {
        return false;
      }
      // An operand that a step does not have is -1, and is not read.
      for (const int64_t operand : {step->a, step->b, step->c}) {
        if (operand != -1 && !fits_program(program, operand, shape)) return false;
      }
    }
  }
  return true;
}

// `tuple` is (steps, counts, slots, operands, results): bytes of ProgramStep, two tuples of four
// integers, bytes of int64 elements, and bytes of ProgramResult.
inline bool read_program(PyObject* tuple, ProgramHolder* out) {
  char* bytes;
  Py_ssize_t length;
  const int64_t* operands;
  const ProgramResult* results;
  Program& program = out->program;
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) {
    PyErr_SetString(PyExc_TypeError, "program: expected a tuple of 5");
    return false;
  }
  if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, 0), &bytes, &length) != 0 ||
      !read_integers(PyTuple_GetItem(tuple, 1), "program: counts", 4, program.counts) ||
      !read_integers(PyTuple_GetItem(tuple, 2), "program: slots", 4, program.slots) ||
      !read_records(PyTuple_GetItem(tuple, 3), &operands, &program.operand_count) ||
      !read_records(PyTuple_GetItem(tuple, 4), &results, &program.result_count)) {
    return false;
  }
  program.steps = reinterpret_cast<const ProgramStep*>(bytes);
  program.operands = out->operands;
  program.results = out->results;
  bool fits = program.operand_count + program.result_count <= kMaxProgramPlaces &&
              program.result_count > 0 && steps_fit(program, length);
  for (int64_t i = 0; fits && i < program.operand_count; ++i) {
    fits = operands[i] >= 0 && operands[i] < kElements;
    out->operands[i] = static_cast<Element>(operands[i]);
  }
  for (int64_t i = 0; fits && i < program.result_count; ++i) {
    const int64_t element = static_cast<int64_t>(results[i].element);
    fits = element >= 0 && element < kElements && fits_program(program, results[i].value, kTile);
    out->results[i] = results[i];
  }
  if (!fits) PyErr_SetString(PyExc_ValueError, "program: expected steps within slots and operands");
  return fits;
}

}  // namespace torchyard
