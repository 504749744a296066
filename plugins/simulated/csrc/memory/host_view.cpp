#include "memory/host_view.h"

#include "device/device.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

namespace torchyard::simulated {

namespace {

at::Tensor view_over(const at::Tensor& like, at::Storage storage, c10::DispatchKey key,
                     int64_t storage_offset) {
  c10::DispatchKeySet keys(key);
  if (like._is_zerotensor()) {
    keys = keys.add(c10::DispatchKey::ZeroTensor);
  }
  auto view = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  auto* impl = view.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), storage_offset);
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return view;
}

c10::impl::LocalDispatchKeySet plain_keys() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  // As torch starts a thread, below autograd: without the selection of backends no kernel could
  // allocate a tensor, and autocast is off where no one turned it on.
  keys.included_ = c10::default_included_set;
  keys.excluded_ = c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

}  // namespace

at::Storage alias_storage(const at::Storage& device_storage) {
  return at::Storage(at::Storage::use_byte_size_t(), device_storage.nbytes(),
                     at::DataPtr(device_storage.mutable_data(), c10::Device(c10::kCPU)),
                     c10::GetCPUAllocator(),
                     /*resizable=*/true);
}

at::Tensor host_view(const at::Tensor& device_tensor, at::Storage host_storage, int64_t origin) {
  return view_over(device_tensor, std::move(host_storage), c10::DispatchKey::CPU,
                   device_tensor.storage_offset() - origin);
}

at::Tensor device_view(const at::Tensor& host_tensor, at::Storage device_storage, int64_t origin) {
  return view_over(host_tensor, std::move(device_storage), c10::DispatchKey::PrivateUse1,
                   host_tensor.storage_offset() + origin);
}

PlainDispatch::PlainDispatch() : guard_(plain_keys()) {}

}  // namespace torchyard::simulated
