#include "ops/compiled.h"

#include "device/device.h"
#include "streams/launch.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <atomic>

namespace torchyard::simulated {

namespace {

using Entry = void (*)(const int64_t* words);

std::atomic<int64_t> launches{0};

c10::Device common_device(const std::string& name, at::TensorList tensors) {
  std::optional<c10::Device> common;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().type() == kType) {
      TORCH_CHECK(!common || *common == tensor.device(), name,
                  ": tensors: expected all on one device, got ", *common, " and ", tensor.device(),
                  "; move them to one device before the compiled function");
      common = tensor.device();
    }
  }
  TORCH_CHECK(common.has_value(), name,
              ": tensors: expected at least one of the simulated device, got none");
  return *common;
}

}  // namespace

void launch_compiled(const std::string& name, int64_t entry, at::TensorList tensors,
                     at::IntArrayRef written, at::IntArrayRef scalars) {
  TORCH_CHECK(entry != 0, name, ": entry: expected the address of a compiled kernel, got 0");
  TORCH_CHECK(written.size() == tensors.size(), name, ": written: expected ", tensors.size(),
              " numbers, one for each tensor, got ", written.size());
  const c10::Device device = common_device(name, tensors);
  std::vector<Operand> operands;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_written = written[i] != 0;
    if (tensors[i].device().type() == kType) {
      operands.push_back({tensors[i], is_written});
      continue;
    }
    TORCH_CHECK(tensors[i].is_cpu() && tensors[i].dim() == 0 && !is_written, name,
                ": tensors: expected tensors on ", device,
                ", or numbers on the CPU that are only read, got one of ", tensors[i].dim(),
                " dimensions on ", tensors[i].device());
    operands.push_back({tensors[i].clone(), false});  // the caller may change it before it is read
  }
  ++launches;
  RECORD_FUNCTION(name, std::vector<c10::IValue>());  // torch.profiler shows it beside operators
  const c10::DeviceGuard on_device(device);
  launch(current_queue(device.index()), name.c_str(), std::move(operands),
         [run = reinterpret_cast<Entry>(entry),
          scalars = scalars.vec()](const std::vector<at::Tensor>& host) {
           std::vector<int64_t> words;
           words.reserve(host.size() + scalars.size());
           for (const at::Tensor& tensor : host) {
             words.push_back(reinterpret_cast<int64_t>(tensor.data_ptr()));
           }
           words.insert(words.end(), scalars.begin(), scalars.end());
           run(words.data());
         });
}

int64_t compiled_launches() { return launches; }

}  // namespace torchyard::simulated
