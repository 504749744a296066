// Every reduction of every instruction set that this processor has, against plain loops.
#include "shm/reduce/reduce.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "base/isa/cpu_features.h"

namespace {

using torchyard::shm::Dtype;
using torchyard::shm::element_bytes;
using torchyard::shm::kDtypes;
using torchyard::shm::kOperations;
using torchyard::shm::Operation;
using torchyard::shm::Reduction;

// Around the lanes of a register and the elements of a block.
constexpr size_t kCounts[] = {0, 1, 3, 15, 16, 17, 1023, 1024, 1025, 2500};
constexpr int kMost = 5;

int checked = 0;

void fail(const char* set, int dtype, int operation, size_t count, int many) {
  std::printf("%s: dtype %d, operation %d, %zu elements, %d sources: wrong\n", set, dtype,
              operation, count, many);
  std::exit(1);
}

// Small whole numbers, in the bits of a dtype: halves have few, and their products stay exact.
void fill(Dtype dtype, std::vector<unsigned char>* bytes, size_t count, std::mt19937* random) {
  bytes->assign(count * element_bytes(dtype) + 1, 0xee);
  for (size_t i = 0; i < count; ++i) {
    const unsigned value = (*random)() % (dtype == Dtype::kBool ? 2 : 3);
    const float number = static_cast<float>(value);
    unsigned char* place = bytes->data() + i * element_bytes(dtype);
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    if (dtype == Dtype::kFloat32) {
      std::memcpy(place, &number, 4);
    } else if (dtype == Dtype::kFloat64) {
      const double wide = number;
      std::memcpy(place, &wide, 8);
    } else if (dtype == Dtype::kBFloat16) {
      const uint16_t half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(place, &half, 2);
    } else if (dtype == Dtype::kFloat16) {
      const uint16_t halves[] = {0x0000, 0x3c00, 0x4000};  // 0, 1, 2
      std::memcpy(place, &halves[value], 2);
    } else {
      const uint64_t whole = value;
      std::memcpy(place, &whole, element_bytes(dtype));
    }
  }
}

// The scalar set is held against loops written here, for the dtypes that C++ has.
template <class T>
void check_scalar(Dtype dtype) {
  std::mt19937 random(1);
  for (int op = 0; op < kOperations; ++op) {
    const auto operation = static_cast<Operation>(op);
    const Reduction reduce =
        torchyard::shm::kReductionKernels.find("reduction_scalar")->find(dtype, operation);
    if (reduce == nullptr) continue;
    for (int many = 1; many <= kMost; ++many) {
      std::vector<std::vector<unsigned char>> inputs(static_cast<size_t>(many));
      const void* sources[kMost];
      for (int i = 0; i < many; ++i) {
        fill(dtype, &inputs[static_cast<size_t>(i)], 100, &random);
        sources[i] = inputs[static_cast<size_t>(i)].data();
      }
      std::vector<T> out(100);
      reduce(sources, many, 100, out.data(), nullptr);
      for (size_t i = 0; i < 100; ++i) {
        T expected{};
        for (int source = 0; source < many; ++source) {
          T value;
          std::memcpy(&value, static_cast<const T*>(sources[source]) + i, sizeof(T));
          if (source == 0) {
            expected = value;
          } else if (operation == Operation::kProduct) {
            expected = static_cast<T>(expected * value);
          } else if (operation == Operation::kLeast) {
            expected = value < expected ? value : expected;
          } else if (operation == Operation::kGreatest) {
            expected = value > expected ? value : expected;
          } else if (operation == Operation::kSum || operation == Operation::kAverage) {
            expected = static_cast<T>(expected + value);
          } else {
            const auto a = static_cast<uint64_t>(expected);
            const auto b = static_cast<uint64_t>(value);
            expected = static_cast<T>(operation == Operation::kAnd  ? a & b
                                      : operation == Operation::kOr ? a | b
                                                                    : a ^ b);
          }
        }
        if (operation == Operation::kAverage) expected = static_cast<T>(expected / many);
        if (std::memcmp(&expected, &out[i], sizeof(T)) != 0) {
          fail("scalar", static_cast<int>(dtype), op, 100, many);
        }
      }
      ++checked;
    }
  }
}

// The other sets are held against the scalar one, bit by bit, out of place and in place.
void check_same(const char* set, Reduction (*find)(Dtype, Operation)) {
  std::mt19937 random(2);
  for (int d = 0; d < kDtypes; ++d) {
    for (int op = 0; op < kOperations; ++op) {
      const auto dtype = static_cast<Dtype>(d);
      const Reduction plain = torchyard::shm::kReductionKernels.find("reduction_scalar")
                                  ->find(dtype, static_cast<Operation>(op));
      const Reduction fast = find(dtype, static_cast<Operation>(op));
      if ((plain == nullptr) != (fast == nullptr)) fail(set, d, op, 0, 0);
      if (plain == nullptr) continue;
      for (const size_t count : kCounts) {
        for (int many = 1; many <= kMost; ++many) {
          const size_t bytes = count * element_bytes(dtype);
          std::vector<std::vector<unsigned char>> inputs(static_cast<size_t>(many));
          const void* sources[kMost];
          for (int i = 0; i < many; ++i) {
            fill(dtype, &inputs[static_cast<size_t>(i)], count, &random);
            sources[i] = inputs[static_cast<size_t>(i)].data();
          }
          std::vector<unsigned char> expected(bytes + 1, 0xee);
          std::vector<unsigned char> found(bytes + 1, 0xee);
          plain(sources, many, count, expected.data(), nullptr);
          std::vector<unsigned char> twin(bytes + 1, 0xee);
          fast(sources, many, count, found.data(), twin.data());
          if (expected != found || expected != twin) fail(set, d, op, count, many);
          std::vector<unsigned char>& last = inputs[static_cast<size_t>(many - 1)];
          fast(sources, many, count, last.data(), nullptr);
          if (expected != last) fail(set, d, op, count, many);
          ++checked;
        }
      }
    }
  }
}

}  // namespace

int main() {
  check_scalar<float>(Dtype::kFloat32);
  check_scalar<double>(Dtype::kFloat64);
  check_scalar<int8_t>(Dtype::kInt8);
  check_scalar<uint8_t>(Dtype::kUInt8);
  check_scalar<int16_t>(Dtype::kInt16);
  check_scalar<uint16_t>(Dtype::kUInt16);
  check_scalar<int32_t>(Dtype::kInt32);
  check_scalar<uint32_t>(Dtype::kUInt32);
  check_scalar<int64_t>(Dtype::kInt64);
  check_scalar<uint64_t>(Dtype::kUInt64);
  const auto& kernels = torchyard::shm::kReductionKernels;
  for (size_t k = 0; k < kernels.size(); ++k) {
    if ((kernels[k].required & ~torchyard::detect_features()) != 0) continue;
    check_same(kernels[k].isa, kernels[k].find);
  }
  std::printf("%d reductions\n", checked);
  return checked == 0 ? 1 : 0;
}
