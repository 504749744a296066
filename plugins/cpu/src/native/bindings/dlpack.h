// The parts of DLPack 1.3 that are used here: how frameworks read and exchange tensors in C.
//
// Source: include/dlpack/dlpack.h of https://github.com/dmlc/dlpack, version 1.3. The layout of
// these structures is fixed for major version 1; names are DLPack's, without its prefix DL.
#pragma once

#include <cstdint>

namespace torchyard::dlpack {

constexpr uint32_t kMajorVersion = 1;

enum DeviceType : int32_t { kCpu = 1 };

struct Device {
  DeviceType type;
  int32_t id;
};

enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kBool = 6 };

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct Version {
  uint32_t major;
  uint32_t minor;
};

struct ExchangeApiHeader {
  Version version;
  ExchangeApiHeader* prev_api;
};

// The capsule `__dlpack_c_exchange_api__` of a type of tensors. Functions return 0, or another
// number with a Python exception set. Those that are not used here have the type of another one.
struct ExchangeApi {
  ExchangeApiHeader header;
  void (*managed_tensor_allocator)();
  void (*managed_tensor_from_py_object_no_sync)();
  void (*managed_tensor_to_py_object_no_sync)();
  // Fills in what a tensor is; shape and strides belong to the tensor. May be null.
  int (*dltensor_from_py_object_no_sync)(void* py_object, Tensor* out);
  void (*current_work_stream)();
};

constexpr const char* kExchangeApiAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kExchangeApiCapsule = "dlpack_exchange_api";

}  // namespace torchyard::dlpack
