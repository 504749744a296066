// Calls the native module's functions for a Python on another processor, over stdin and stdout.
//
// A request: memory regions (number; address and size there, bytes), the function's name and its
// arguments as a tuple. Integers, and words within bytes, that lie in a region there become
// addresses of its copy here, which ends where a page ends that must not be touched: one byte read
// too many ends this process. The answer: 'r' and the result, or 'e', the exception's type and
// text; then the bytes of all regions. Numbers are little-endian, of 64 bits.
//
// A request of the name "" asks for (constants, names of functions).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "Python.h"

PyMODINIT_FUNC PyInit__native();

namespace {

using python::state;

[[noreturn]] void end(const char* why) {
  std::fprintf(stderr, "server: %s\n", why);
  std::exit(1);
}

// Returns false where the input ends.
bool read_bytes(void* to, size_t size) { return std::fread(to, 1, size, stdin) == size; }

int64_t read_integer() {
  int64_t value;
  if (!read_bytes(&value, sizeof(value))) end("the request is cut short");
  return value;
}

void write_bytes(const void* from, size_t size) {
  if (std::fwrite(from, 1, size, stdout) != size) end("the answer cannot be written");
}

void write_integer(int64_t value) { write_bytes(&value, sizeof(value)); }

void write_text(const std::string& text) {
  write_integer(static_cast<int64_t>(text.size()));
  write_bytes(text.data(), text.size());
}

class Region {
 public:
  Region(int64_t there, int64_t size) : there_(there), size_(static_cast<size_t>(size)) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t used = (size_ + page - 1) / page * page;
    mapped_ = used + page;
    void* start =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) end("no memory for a region");
    start_ = static_cast<char*>(start);
    if (mprotect(start_ + used, page, PROT_NONE) != 0) end("a page cannot be protected");
    data_ = start_ + used - size_;
    if (!read_bytes(data_, size_)) end("the request is cut short");
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { munmap(start_, mapped_); }

  bool holds(int64_t address) const {
    return address >= there_ && address < there_ + static_cast<int64_t>(size_);
  }
  int64_t placed(int64_t address) const {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(data_)) + address - there_;
  }
  void write() const { write_bytes(data_, size_); }

 private:
  int64_t there_;
  size_t size_;
  size_t mapped_;
  char* start_;
  char* data_;
};

using Regions = std::deque<Region>;

int64_t placed(const Regions& regions, int64_t value) {
  for (const Region& region : regions) {
    if (region.holds(value)) return region.placed(value);
  }
  return value;
}

PyObject* read_object(const Regions& regions) {
  char kind;
  if (!read_bytes(&kind, 1)) end("the request is cut short");
  PyObject* object = python::make(static_cast<PyObject::Kind>(kind));
  switch (object->kind) {
    case PyObject::kNone:
      return Py_None;
    case PyObject::kBool:
    case PyObject::kInteger:
      object->integer = placed(regions, read_integer());
      return object;
    case PyObject::kFloat:
      if (!read_bytes(&object->real, sizeof(double))) end("the request is cut short");
      return object;
    case PyObject::kText:
    case PyObject::kBytes:
      object->text.resize(static_cast<size_t>(read_integer()));
      if (!read_bytes(object->text.data(), object->text.size())) end("the request is cut short");
      if (object->kind == PyObject::kText) return object;
      for (size_t i = 0; i + sizeof(int64_t) <= object->text.size(); i += sizeof(int64_t)) {
        int64_t word;
        std::memcpy(&word, &object->text[i], sizeof(word));
        word = placed(regions, word);
        std::memcpy(&object->text[i], &word, sizeof(word));
      }
      return object;
    case PyObject::kTuple:
    case PyObject::kList:
      object->items.resize(static_cast<size_t>(read_integer()));
      for (PyObject*& item : object->items) item = read_object(regions);
      return object;
    case PyObject::kIterator:
      break;
  }
  end("an object of an unknown kind");
}

void write_object(const PyObject* object) {
  write_bytes(&object->kind, 1);
  switch (object->kind) {
    case PyObject::kBool:
    case PyObject::kInteger:
      return write_integer(object->integer);
    case PyObject::kFloat:
      return write_bytes(&object->real, sizeof(double));
    case PyObject::kText:
    case PyObject::kBytes:
      return write_text(object->text);
    case PyObject::kTuple:
    case PyObject::kList:
      write_integer(static_cast<int64_t>(object->items.size()));
      for (const PyObject* item : object->items) write_object(item);
      return;
    case PyObject::kNone:
    case PyObject::kIterator:
      return;
  }
}

PyObject* describe() {
  PyObject* constants = PyTuple_New(0);
  for (const auto& [name, value] : state.constants) {
    constants->items.push_back(Py_BuildValue("(sL)", name.c_str(), value));
  }
  PyObject* names = PyTuple_New(0);
  for (const PyMethodDef* method : state.methods) {
    names->items.push_back(PyUnicode_FromString(method->name));
  }
  return Py_BuildValue("(OO)", constants, names);
}

PyObject* call(const std::string& name, PyObject* arguments) {
  using Fast = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);
  if (name.empty()) return describe();
  for (const PyMethodDef* method : state.methods) {
    if (name != method->name) continue;
    if (method->flags == METH_NOARGS) return method->function(nullptr, nullptr);
    if (method->flags == METH_O) {
      if (PyTuple_Size(arguments) != 1) return python::fail("TypeError", "expected 1 argument");
      return method->function(nullptr, PyTuple_GetItem(arguments, 0));
    }
    const Fast function = reinterpret_cast<Fast>(reinterpret_cast<void (*)()>(method->function));
    return function(nullptr, arguments->items.data(), PyTuple_Size(arguments));
  }
  return python::fail("AttributeError", name);
}

// Returns false where the input ends.
bool answer() {
  int64_t count;
  if (!read_bytes(&count, sizeof(count))) return false;
  Regions regions;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t there = read_integer();
    regions.emplace_back(there, read_integer());
  }
  state.objects.clear();
  state.error = nullptr;
  const std::string name = read_object(regions)->text;
  const PyObject* result = call(name, read_object(regions));
  if (state.error == nullptr) {
    write_bytes("r", 1);
    write_object(result);
  } else {
    write_bytes("e", 1);
    write_text(state.error);
    write_text(state.message);
  }
  for (const Region& region : regions) region.write();
  std::fflush(stdout);
  return true;
}

}  // namespace

int main() {
  if (PyInit__native() == nullptr) end("the module does not start");
  while (answer()) {
  }
  return 0;
}
