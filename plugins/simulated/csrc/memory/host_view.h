// CPU tensors over device memory: how host kernels reach it. Never handed to the user.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchyard::simulated {

// A CPU storage over the same bytes. It owns nothing: the stream order keeps the bytes valid.
at::Storage alias_storage(const at::Storage& device_storage);

// A CPU tensor with the geometry, dtype, conj/neg bits and zero mark of `device_tensor` over
// `host_storage`, whose byte 0 is element `origin` of the device tensor's storage.
at::Tensor host_view(const at::Tensor& device_tensor, at::Storage host_storage, int64_t origin = 0);

// The reverse: a device tensor with the geometry of `host_tensor` over `device_storage`.
at::Tensor device_view(const at::Tensor& host_tensor, at::Storage device_storage,
                       int64_t origin = 0);

// Host kernels run plainly: no autograd, no Python mode of whichever thread happens to drain.
class PlainDispatch {
 public:
  PlainDispatch();

 private:
  c10::impl::ForceDispatchKeyGuard guard_;
};

}  // namespace torchyard::simulated
