#include "bindings/fast_path.h"

#include <initializer_list>

#include "bindings/fast_paths.h"

namespace torchyard {

int add_fast_paths(PyObject* module) {
  for (const auto add : {add_tensor_reader, add_attention_fast_path, add_chain_fast_path,
                         add_linear_fast_path, add_linear_fused_fast_path, add_pointwise_fast_path,
                         add_quantised_fast_path, add_recurrent_fast_path, add_topk_fast_path}) {
    if (add(module) != 0) return -1;
  }
  return 0;
}

}  // namespace torchyard
