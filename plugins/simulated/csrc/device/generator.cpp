#include "device/generator.h"

#include "device/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <vector>

namespace torchyard::simulated {

Generator::Generator(c10::DeviceIndex index)
    : c10::GeneratorImpl(device_of(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      host_(at::detail::createCPUGenerator()) {}

void Generator::set_current_seed(uint64_t seed) { host_.set_current_seed(seed); }

void Generator::set_offset(uint64_t offset) { host_.set_offset(offset); }

uint64_t Generator::get_offset() const { return host_.get_offset(); }

uint64_t Generator::current_seed() const { return host_.current_seed(); }

uint64_t Generator::seed() { return host_.seed(); }

void Generator::set_state(const c10::TensorImpl& state) {
  host_.unsafeGetGeneratorImpl()->set_state(state);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  return host_.unsafeGetGeneratorImpl()->get_state();
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->host_ = host_.clone();
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* const generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (c10::DeviceIndex index = 0; index < kDeviceCount; ++index) {
      all->push_back(at::make_generator<Generator>(index));
    }
    return all;
  }();
  return (*generators)[static_cast<size_t>(resolve_index(device))];
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<Generator>(resolve_index(device));
}

at::Generator host_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kType,
              "generator: expected a generator of the simulated device, got one of ",
              generator.device());
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host();
}

namespace {

void copy_state(const at::Generator& from, at::Generator to) {
  to.unsafeGetGeneratorImpl()->set_state(*from.unsafeGetGeneratorImpl()->get_state());
}

}  // namespace

BorrowedSequence::BorrowedSequence(c10::DeviceIndex device) : device_(default_generator(device)) {
  auto host = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(host.mutex());
  saved_ = host.unsafeGetGeneratorImpl()->get_state();
  copy_state(device_, host);
}

BorrowedSequence::~BorrowedSequence() {
  auto host = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(host.mutex());
  copy_state(host, device_);
  host.unsafeGetGeneratorImpl()->set_state(*saved_);
}

}  // namespace torchyard::simulated
