// The module of another processor has no tensors of torch in its memory, and so no fast paths.
#include "bindings/fast_paths.h"

int torchyard::add_fast_paths(PyObject*) { return 0; }
