#include "bindings/direct.h"

#include <initializer_list>

namespace torchyard {

int add_direct(PyObject* module) {
  for (const auto add :
       {add_addresses, add_attention_direct, add_chain, add_linear_direct, add_linear_fused,
        add_pointwise_direct, add_recurrent_direct, add_topk_direct}) {
    if (add(module) != 0) return -1;
  }
  return 0;
}

}  // namespace torchyard
