// Random generators of the device: each wraps a CPU generator, which the host kernels draw from.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace torchyard::simulated {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex index);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  at::Generator& host() { return host_; }

 private:
  Generator* clone_impl() const override;

  at::Generator host_;
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// The CPU generator behind a device generator; raises for a generator of another device.
at::Generator host_generator(const at::Generator& generator);

// While alive, torch's default CPU generator continues the device's default sequence: for host
// kernels that draw random numbers and take no generator.
class BorrowedSequence {
 public:
  explicit BorrowedSequence(c10::DeviceIndex device);
  ~BorrowedSequence();
  BorrowedSequence(const BorrowedSequence&) = delete;
  BorrowedSequence& operator=(const BorrowedSequence&) = delete;

 private:
  at::Generator device_;
  c10::intrusive_ptr<c10::TensorImpl> saved_;
};

}  // namespace torchyard::simulated
