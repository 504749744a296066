// torchyard_cpu._shm: groups of processes that share memory. Signatures are in _shm.pyi.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bindings/shm/arguments.h"

namespace torchyard::shm {
namespace {

void release(PyObject* capsule) {
  Member* member = static_cast<Member*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (member == nullptr) {
    PyErr_Clear();
    return;
  }
  // A lock that another thread held when the process forked stays locked.
  if (member->group.forked()) return;
  Py_BEGIN_ALLOW_THREADS;
  delete member->messages;
  delete member;
  Py_END_ALLOW_THREADS;
}

// None, or why not: code, ranks, witness, reason, and what they and we announced.
PyObject* told(const Outcome& outcome) {
  if (outcome.ok()) Py_RETURN_NONE;
  if (outcome.code == Code::kInterrupted && PyErr_Occurred() != nullptr) return nullptr;
  return Py_BuildValue("(iKiiKKKK)", static_cast<int>(outcome.code),
                       static_cast<unsigned long long>(outcome.ranks), outcome.witness,
                       static_cast<int>(outcome.reason),
                       static_cast<unsigned long long>(outcome.theirs[0]),
                       static_cast<unsigned long long>(outcome.theirs[1]),
                       static_cast<unsigned long long>(outcome.ours[0]),
                       static_cast<unsigned long long>(outcome.ours[1]));
}

// Runs a collective without the GIL, alone in its group.
template <class Body>
PyObject* run(Member* member, Body body) {
  Outcome outcome = member->group.ready();
  if (!outcome.ok()) return told(outcome);
  Py_BEGIN_ALLOW_THREADS;
  {
    const std::lock_guard<std::mutex> turn(member->turn);
    outcome = body(member->group);
  }
  Py_END_ALLOW_THREADS;
  return told(outcome);
}

using Arguments = PyObject* const*;

PyObject* py_make_segment(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 1);
  const int ranks = static_cast<int>(read.within("ranks", 1, kMaxRanks));
  if (!read.ok()) return nullptr;
  const int file = make_segment(ranks);
  return file < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(file);
}

PyObject* py_start_time(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 1);
  const int64_t pid = read.integer();
  return read.ok() ? PyLong_FromUnsignedLongLong(start_time(pid)) : nullptr;
}

PyObject* py_join(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 4);
  int64_t pids[kMaxRanks];
  int64_t starts[kMaxRanks];
  const int file = static_cast<int>(read.integer());
  const int rank = static_cast<int>(read.within("rank", 0, kMaxRanks - 1));
  const Py_ssize_t ranks = read.integers("pids", pids, 1, kMaxRanks);
  read.integers("starts", starts, ranks, ranks);
  if (!read.ok()) return nullptr;
  if (rank >= ranks) {
    return PyErr_Format(PyExc_ValueError, "rank: expected less than %zd, got %d", ranks, rank);
  }
  uint64_t started[kMaxRanks];
  for (Py_ssize_t i = 0; i < ranks; ++i) started[i] = static_cast<uint64_t>(starts[i]);
  Member* member = new Member;
  if (!member->group.map(file, rank, static_cast<int>(ranks), pids, started)) {
    PyErr_SetFromErrno(PyExc_OSError);
    delete member;
    return nullptr;
  }
  member->messages = new Messages(member->group);
  return PyCapsule_New(member, kCapsule, release);
}

PyObject* py_meet(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 2);
  Member* member = read.member();
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  return run(member, [&](Group& group) { return group.meet(patience); });
}

PyObject* py_all_reduce(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 7);
  Member* member = read.member();
  const void* in = read.pointer<const void>();
  void* out = read.pointer<void>();
  const size_t count = read.size("count");
  const Arithmetic arithmetic = read.arithmetic();
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  return run(member,
             [&](Group& group) { return all_reduce(group, in, out, count, arithmetic, patience); });
}

PyObject* py_reduce(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 8);
  Member* member = read.member();
  const void* in = read.pointer<const void>();
  void* out = read.pointer<void>();
  const size_t count = read.size("count");
  const Arithmetic arithmetic = read.arithmetic();
  const int root = static_cast<int>(read.within("root", 0, kMaxRanks - 1));
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  return run(member, [&](Group& group) {
    return reduce(group, in, out, count, arithmetic, root, patience);
  });
}

PyObject* py_reduce_scatter(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 7);
  Member* member = read.member();
  if (!read.ok()) return nullptr;
  const Py_ssize_t ranks = member->group.ranks();
  int64_t addresses[kMaxRanks];
  int64_t sizes[kMaxRanks];
  read.integers("in", addresses, ranks, ranks);
  void* out = read.pointer<void>();
  read.integers("counts", sizes, ranks, ranks);
  const Arithmetic arithmetic = read.arithmetic();
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  const void* in[kMaxRanks];
  size_t counts[kMaxRanks];
  for (Py_ssize_t rank = 0; rank < ranks; ++rank) {
    in[rank] = reinterpret_cast<const void*>(static_cast<intptr_t>(addresses[rank]));
    counts[rank] = static_cast<size_t>(sizes[rank]);
  }
  return run(member, [&](Group& group) {
    return reduce_scatter(group, in, out, counts, arithmetic, patience);
  });
}

PyObject* py_move(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 7);
  Member* member = read.member();
  if (!read.ok()) return nullptr;
  const Py_ssize_t ranks = member->group.ranks();
  int64_t words[2][2 * kMaxRanks];
  Place to[kMaxRanks];
  Place from[kMaxRanks];
  Movement movement{};
  movement.kind = static_cast<Kind>(
      read.within("kind", static_cast<int64_t>(Kind::kBarrier), int64_t{UINT8_MAX}));
  movement.root = static_cast<int>(read.within("root", 0, kMaxRanks - 1));
  movement.bytes = read.size("bytes");
  const Py_ssize_t outgoing = read.integers("to", words[0], 2, 2 * ranks);
  read.integers("from", words[1], 2 * ranks, 2 * ranks);
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  movement.shared = outgoing == 2 && ranks != 1;
  const auto place = [](const int64_t* pair) {
    return Place{reinterpret_cast<void*>(static_cast<intptr_t>(pair[0])),
                 static_cast<size_t>(pair[1])};
  };
  for (Py_ssize_t rank = 0; rank < ranks; ++rank) {
    if (2 * rank < outgoing) to[rank] = place(words[0] + 2 * rank);
    from[rank] = place(words[1] + 2 * rank);
  }
  movement.to = to;
  movement.from = from;
  return run(member, [&](Group& group) { return move(group, movement, patience); });
}

PyObject* py_barrier(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 2);
  Member* member = read.member();
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  return run(member, [&](Group& group) { return barrier(group, patience); });
}

PyObject* start_message(Arguments arguments, Py_ssize_t given, bool sends) {
  Reader read(arguments, given, 5);
  Member* member = read.member();
  if (!read.ok()) return nullptr;
  const int peer =
      static_cast<int>(read.within("rank", sends ? 0 : kAnyRank, member->group.ranks() - 1));
  const int64_t tag = read.within("tag", INT64_MIN + 1, INT64_MAX);
  void* data = read.pointer<void>();
  const size_t bytes = read.size("bytes");
  if (!read.ok()) return nullptr;
  if (member->group.forked()) return PyLong_FromLong(0);
  uint64_t number = 0;
  Py_BEGIN_ALLOW_THREADS;
  number = sends ? member->messages->send(peer, tag, data, bytes)
                 : member->messages->receive(peer, tag, data, bytes);
  Py_END_ALLOW_THREADS;
  return PyLong_FromUnsignedLongLong(number);
}

PyObject* py_send(PyObject*, Arguments arguments, Py_ssize_t given) {
  return start_message(arguments, given, true);
}

PyObject* py_receive(PyObject*, Arguments arguments, Py_ssize_t given) {
  return start_message(arguments, given, false);
}

PyObject* result_of(const Messages::Result& result) {
  if (!result.done) Py_RETURN_NONE;
  PyObject* failure = told(result.outcome);
  return failure == nullptr ? nullptr : Py_BuildValue("(iN)", result.source, failure);
}

PyObject* py_look(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 2);
  Member* member = read.member();
  const uint64_t number = static_cast<uint64_t>(read.integer());
  if (!read.ok()) return nullptr;
  if (member->group.forked()) return result_of({true, {Code::kForked}, kAnyRank});
  Messages::Result result;
  Py_BEGIN_ALLOW_THREADS;
  result = member->messages->look(number);
  Py_END_ALLOW_THREADS;
  return result_of(result);
}

PyObject* py_wait(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 3);
  Member* member = read.member();
  const uint64_t number = static_cast<uint64_t>(read.integer());
  const Patience patience = read.patience();
  if (!read.ok()) return nullptr;
  if (member->group.forked()) return result_of({true, {Code::kForked}, kAnyRank});
  Messages::Result result;
  Py_BEGIN_ALLOW_THREADS;
  result = member->messages->wait(number, patience);
  Py_END_ALLOW_THREADS;
  return result_of(result);
}

PyObject* py_leave(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 2);
  Member* member = read.member();
  if (!read.ok()) return nullptr;
  Py_ssize_t bytes;
  const char* note = PyUnicode_AsUTF8AndSize(arguments[1], &bytes);
  if (note == nullptr) return nullptr;
  if (!member->group.forked()) {
    Py_BEGIN_ALLOW_THREADS;
    member->group.close();
    member->group.leave(note, static_cast<size_t>(bytes));
    member->messages->stop();
    Py_END_ALLOW_THREADS;
  }
  Py_RETURN_NONE;
}

PyObject* py_note(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 2);
  Member* member = read.member();
  if (!read.ok()) return nullptr;
  const int rank = static_cast<int>(read.within("rank", 0, member->group.ranks() - 1));
  if (!read.ok()) return nullptr;
  const char* note = member->group.forked() ? nullptr : member->group.note(rank);
  return PyUnicode_FromString(note == nullptr ? "" : note);
}

PyObject* py_reduces(PyObject*, Arguments arguments, Py_ssize_t given) {
  Reader read(arguments, given, 2);
  const auto dtype = static_cast<Dtype>(read.within("dtype", 0, kDtypes - 1));
  const auto operation = static_cast<Operation>(read.within("operation", 0, kOperations - 1));
  if (!read.ok()) return nullptr;
  return PyBool_FromLong(find_reduction(dtype, operation) != nullptr);
}

PyMethodDef method(const char* name, PyObject* (*function)(PyObject*, Arguments, Py_ssize_t)) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL,
          nullptr};
}

PyMethodDef methods[] = {
    method("all_reduce", py_all_reduce),
    method("barrier", py_barrier),
    method("join", py_join),
    method("leave", py_leave),
    method("look", py_look),
    method("make_segment", py_make_segment),
    method("meet", py_meet),
    method("move", py_move),
    method("note", py_note),
    method("receive", py_receive),
    method("reduce", py_reduce),
    method("reduce_scatter", py_reduce_scatter),
    method("reduces", py_reduces),
    method("send", py_send),
    method("start_time", py_start_time),
    method("wait", py_wait),
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_shm",
                          "Groups of processes that share memory.",
                          0,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace torchyard::shm

PyMODINIT_FUNC PyInit__shm() {
  PyObject* module = PyModule_Create(&torchyard::shm::definition);
  if (module == nullptr) return nullptr;
  if (PyModule_AddIntConstant(module, "MAX_RANKS", torchyard::shm::kMaxRanks) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
