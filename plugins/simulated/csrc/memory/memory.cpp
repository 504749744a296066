#include "memory/memory.h"

#include "device/device.h"
#include "memory/allocator.h"
#include "memory/host_allocator.h"
#include "memory/host_view.h"
#include "streams/capture.h"
#include "streams/launch.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

namespace torchyard::simulated {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

bool on_device(const at::Tensor& tensor) { return tensor.device().type() == kType; }

c10::Device target(std::optional<c10::Device> device) {
  return device_of(resolve_index(device.has_value() ? device->index() : -1));
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::Layout::Strided) == c10::Layout::Strided,
              "layout: the simulated device holds strided tensors only, got ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "pin_memory: only CPU tensors can be pinned, got True");
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(target(device));
  return at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  return new_tensor(size, stride, c10::dtype_or_default(dtype), target(device));
}

at::Tensor efficient_zeros(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                           std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                           std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  return zeros_without_memory(size, c10::dtype_or_default(dtype), target(device));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  TORCH_CHECK(!memory_format.has_value() || *memory_format != at::MemoryFormat::Preserve,
              "resize_: memory format preserve has no meaning here");
  if (self.sizes() != size || memory_format.has_value()) {
    const auto strides = at::empty(size, self.options().device(at::kMeta).memory_format(
                                             memory_format.value_or(at::MemoryFormat::Contiguous)))
                             .strides()
                             .vec();
    resize_tensor(self, size, strides, self.storage_offset());
  }
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                         at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  const auto strides = stride.empty() && !size.empty()
                           ? at::empty(size, self.options().device(at::kMeta)).strides().vec()
                           : stride.vec();
  resize_tensor(self, size, strides, offset);
  return self;
}

at::Tensor& set_whole_storage_(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_(self, std::move(source), 0, {elements}, {1});
}

at::Tensor& set_empty_(at::Tensor& self) {
  auto nothing = new_tensor({0}, {1}, self.scalar_type(), self.device());
  return at::native::set_tensor_(self, nothing);
}

void copy_across_devices(const at::Tensor& from, const at::Tensor& to) {
  DeviceLock lock(device_mutex());
  for (const auto& tensor : {from, to}) {
    Queue& queue = current_queue(tensor.device().index());
    if (queue.capture) {
      queue.capture->refuse("copying between devices");
    }
    queue.drain();
  }
  PlainDispatch plain;
  host_view(to, alias_storage(to.storage())).copy_(host_view(from, alias_storage(from.storage())));
}

// A copy between host and device may run later only when the host side is pinned: otherwise the
// caller is free to change or release that memory as soon as this returns.
void copy_within_one_stream(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::Tensor& on = on_device(from) ? from : to;
  const at::Tensor& other = on_device(from) ? to : from;
  Queue& queue = current_queue(on.device().index());
  const bool waits = !on_device(other) && !(non_blocking && is_pinned(other.storage().data()));
  if (waits && queue.capture) {
    DeviceLock lock(device_mutex());
    queue.capture->refuse(
        "copying between the device and host memory, unless the host memory is "
        "pinned and the copy is non_blocking,");
  }
  launch(queue, "copy", {{from, false}, {to, true}},
         [](const std::vector<at::Tensor>& host) { at::Tensor(host[1]).copy_(host[0]); });
  if (waits) {
    synchronize_stream(queue.stream());
  }
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(
      !dst._is_zerotensor(),
      "copy_: the destination is zeros without memory, which cannot be written; clone() it");
  if (self._is_zerotensor()) {
    at::Tensor(dst).zero_();
  } else if (on_device(self) && on_device(dst) && self.device() != dst.device()) {
    copy_across_devices(self, dst);
  } else {
    copy_within_one_stream(self, dst, non_blocking);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, /*non_blocking=*/false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  DeviceLock lock(device_mutex());
  Queue& queue = current_queue(self.device().index());
  if (queue.capture) {
    queue.capture->refuse("reading a value back to the host");
  }
  queue.drain();
  PlainDispatch plain;
  return host_view(self, alias_storage(self.storage())).item();
}

at::Tensor& fill_scalar_(at::Tensor& self, const at::Scalar& value) {
  launch(current_queue(self.device().index()), "fill", {{self, true}},
         [value](const std::vector<at::Tensor>& host) { at::Tensor(host[0]).fill_(value); });
  return self;
}

at::Tensor& fill_tensor_(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_: expected a 0-dimensional value, got ", value.dim(),
              " dimensions");
  const at::Tensor local =
      on_device(value) ? value.to(self.device()) : value.clone();  // the caller may change it
  launch(current_queue(self.device().index()), "fill", {{local, false}, {self, true}},
         [](const std::vector<at::Tensor>& host) { at::Tensor(host[1]).fill_(host[0]); });
  return self;
}

at::Tensor& zero_(at::Tensor& self) { return fill_scalar_(self, 0); }

void record_stream(at::Tensor& self, at::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

at::Tensor new_tensor(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype,
                      c10::Device device) {
  const c10::DeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, dtype);
}

at::Tensor zeros_without_memory(at::IntArrayRef size, at::ScalarType dtype, c10::Device device) {
  at::native::ZeroTensorAllocator nothing(device);
  return at::detail::empty_generic(size, &nothing, kKeys.add(c10::DispatchKey::ZeroTensor), dtype,
                                   std::nullopt);
}

void resize_storage(const at::Storage& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "storage: trying to resize one that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  Queue& queue = current_queue(storage.device().index());
  auto grown = device_allocator()->allocate(bytes);
  const size_t common = std::min(bytes, storage.nbytes());
  {
    DeviceLock lock(device_mutex());
    if (queue.capture && common > 0) {
      queue.capture->refuse("resizing a tensor that holds data");
    }
    if (common > 0) {
      queue.submit(
          [to = grown.get(), from = storage.data(), common] { std::memcpy(to, from, common); });
    }
  }
  storage.set_data_ptr_noswap(std::move(grown));
  storage.set_nbytes(bytes);
}

void resize_tensor(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride,
                   int64_t offset) {
  const size_t bytes = at::detail::computeStorageNbytes(size, stride, tensor.dtype().itemsize(),
                                                        static_cast<size_t>(offset));
  if (bytes > tensor.storage().nbytes()) {
    resize_storage(tensor.storage(), bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
}

void register_memory_kernels(torch::Library& aten) {
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
  aten.impl("_efficientzerotensor", TORCH_FN(efficient_zeros));
  aten.impl("resize_", TORCH_FN(resize_));
  aten.impl("set_.source_Storage", TORCH_FN(set_whole_storage_));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_));
  aten.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  aten.impl("set_", TORCH_FN(set_empty_));
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl(
      "view",
      TORCH_FN(static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view)));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten.impl("_copy_from", TORCH_FN(copy_from));
  aten.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  aten.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  aten.impl("fill_.Scalar", TORCH_FN(fill_scalar_));
  aten.impl("fill_.Tensor", TORCH_FN(fill_tensor_));
  aten.impl("zero_", TORCH_FN(zero_));
  aten.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace torchyard::simulated
