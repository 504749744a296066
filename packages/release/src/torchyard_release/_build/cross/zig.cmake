# A toolchain of CMake: compiles for another platform with the compiler of the `ziglang` package.
#
# By the environment, because builders of wheels pass that on:
#   TORCHYARD_ZIG_PYTHON  a Python with `ziglang`
#   TORCHYARD_ZIG_TARGET  the platform as zig names it, such as aarch64-linux-gnu.2.28
#   TORCHYARD_WINDOWS_PYTHON  for Windows: a folder with `include` and `python3.lib`
set(zig_target "$ENV{TORCHYARD_ZIG_TARGET}")
set(zig_python "$ENV{TORCHYARD_ZIG_PYTHON}")
if(NOT zig_target MATCHES "^(x86_64|aarch64)-(linux|macos|windows)")
  message(FATAL_ERROR "TORCHYARD_ZIG_TARGET: expected x86_64 or aarch64 and linux, macos or windows, "
    "as in aarch64-linux-gnu.2.28, got '${zig_target}'; set it in the environment")
endif()
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_1})
if(CMAKE_MATCH_2 STREQUAL "linux")
  set(CMAKE_SYSTEM_NAME Linux)
elseif(CMAKE_MATCH_2 STREQUAL "macos")
  set(CMAKE_SYSTEM_NAME Darwin)
else()
  set(CMAKE_SYSTEM_NAME Windows)
endif()

set(zig "\"${zig_python}\" -m ziglang")
set(zig_C cc)
set(zig_CXX c++)
foreach(language C CXX)
  set(CMAKE_${language}_COMPILER
    "${zig_python}" -m ziglang ${zig_${language}} -target ${zig_target})
  set(CMAKE_${language}_ARCHIVE_CREATE "${zig} ar qc <TARGET> <LINK_FLAGS> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_APPEND "${zig} ar q <TARGET> <LINK_FLAGS> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "${zig} ranlib <TARGET>")
endforeach()

# The linker strips, since this machine's `strip` knows this machine's files alone.
foreach(kind EXE MODULE SHARED)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-s")
endforeach()
set(CMAKE_STRIP "" CACHE FILEPATH "")
if(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
  # It has no bundles; Python loads dynamic libraries as well.
  string(APPEND CMAKE_MODULE_LINKER_FLAGS_INIT " -dynamiclib")
endif()

# Headers and library of Python for Windows, which this machine's Python has not got.
set(windows_python "$ENV{TORCHYARD_WINDOWS_PYTHON}")
if(CMAKE_SYSTEM_NAME STREQUAL "Windows" AND windows_python)
  set(Python_INCLUDE_DIR "${windows_python}/include")
  set(Python_SABI_LIBRARY "${windows_python}/python3.lib")
endif()
