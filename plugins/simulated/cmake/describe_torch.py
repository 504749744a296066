"""Print root, version and C++ ABI of the installed torch as one CMake list."""

import pathlib

import torch

root = pathlib.Path(torch.__file__).resolve().parent
print(root, torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), sep=";")
