#include "streams/launch.h"

#include "device/device.h"
#include "memory/host_view.h"
#include "streams/capture.h"
#include "streams/engine.h"

#include <algorithm>

namespace torchyard::simulated {

namespace {

bool on_device(const Operand& operand) { return operand.tensor.device().type() == kType; }

std::vector<at::Tensor> final_views(const std::vector<Operand>& operands) {
  std::vector<at::Tensor> views;
  for (const auto& operand : operands) {
    // A fresh view of a CPU tensor, too: dropping the last reference to one that Python has seen
    // takes the GIL, which must not happen under the device's lock.
    const auto& storage = operand.tensor.storage();
    views.push_back(
        host_view(operand.tensor, on_device(operand) ? alias_storage(storage) : storage));
  }
  return views;
}

void trace(Capture& capture, const std::vector<Operand>& operands, const Body& body) {
  std::vector<at::Tensor> views;
  for (const auto& operand : operands) {
    if (!on_device(operand)) {
      if (operand.written) {
        return;  // a copy to the host: nothing recorded depends on it
      }
      views.push_back(operand.tensor);
      continue;
    }
    capture.hold(operand.tensor.storage());
    views.push_back(host_view(operand.tensor,
                              capture.traced_storage(operand.tensor.storage(), operand.written)));
  }
  PlainDispatch plain;
  body(views);
}

}  // namespace

void launch(Queue& queue, const char* name, std::vector<Operand> operands, Body body) {
  note_thread();
  DeviceLock lock(device_mutex());
  Work work = [views = final_views(operands), body] {
    PlainDispatch plain;
    body(views);
  };
  if (queue.capture) {
    // Written operands first, so that an operand read through another view sees the same shadow.
    for (const auto& operand : operands) {
      if (operand.written && on_device(operand)) {
        queue.capture->traced_storage(operand.tensor.storage(), /*written=*/true);
      }
    }
    trace(*queue.capture, operands, body);
    queue.capture->add(queue, {name, std::move(work)});
    return;
  }
  queue.submit(std::move(work));
}

}  // namespace torchyard::simulated
