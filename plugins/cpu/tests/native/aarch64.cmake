# Builds for 64-bit Arm Linux with the compiler of the `ziglang` package, and runs tests under an
# emulator: statically linked, so that no system of that kind is needed.
#
#   TORCHYARD_PYTHON    a Python with `ziglang`
#   TORCHYARD_EMULATOR  the emulator's command; empty: this machine runs the tests itself
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TORCHYARD_PYTHON TORCHYARD_EMULATOR)
set(CMAKE_CXX_COMPILER "${TORCHYARD_PYTHON}" -m ziglang c++ -target aarch64-linux-musl)
set(CMAKE_CXX_ARCHIVE_CREATE
  "\"${TORCHYARD_PYTHON}\" -m ziglang ar qc <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND
  "\"${TORCHYARD_PYTHON}\" -m ziglang ar q <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "\"${TORCHYARD_PYTHON}\" -m ziglang ranlib <TARGET>")
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR "${TORCHYARD_EMULATOR}")
