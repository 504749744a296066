// The recurrent operators that the program calls, by aten's own kernels.
//
// Layouts: input [T, B, I]; states [L*D, B, H or P]; lengths int64 [B], each in 1..T, or none;
// output [T, B, D*(H or P)], zero behind a sequence's length.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_pack_padded_sequence.h>
#include <ATen/ops/_pad_packed_sequence.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/sort.h>
#include <torch/library.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

using Tensors = std::vector<at::Tensor>;
// Takes data [T, B, I] and states; returns the output and the final states.
using Padded = std::function<Tensors(const at::Tensor&, const Tensors&)>;
// Takes packed data [sum of lengths, I], batch sizes and states.
using Packed = std::function<Tensors(const at::Tensor&, const at::Tensor&, const Tensors&)>;

Tensors run(const at::Tensor& input, const std::optional<at::Tensor>& lengths,
            const Tensors& states, const Padded& padded, const Packed& packed) {
  if (!lengths) return padded(input, states);
  const auto [ordered, order] = at::sort(*lengths, /*stable=*/true, /*dim=*/0, /*descending=*/true);
  const auto place = order.to(input.device());
  const auto [data, sizes] =
      at::_pack_padded_sequence(input.index_select(1, place), ordered, /*batch_first=*/false);
  Tensors sorted;
  for (const auto& state : states) sorted.push_back(state.index_select(1, place));
  auto found = packed(data, sizes, sorted);
  found[0] = std::get<0>(
      at::_pad_packed_sequence(found[0], sizes, /*batch_first=*/false, 0.0, input.size(0)));
  const auto back = at::argsort(place);
  for (auto& item : found) item = item.index_select(1, back);
  return found;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input,
                                                    const std::optional<at::Tensor>& lengths,
                                                    const at::Tensor& h0, const at::Tensor& c0,
                                                    at::TensorList weights, bool biases,
                                                    std::int64_t layers, bool bidirectional) {
  const auto listed = [](const std::tuple<at::Tensor, at::Tensor, at::Tensor>& found) {
    return Tensors{std::get<0>(found), std::get<1>(found), std::get<2>(found)};
  };
  const auto found = run(
      input, lengths, {h0, c0},
      [&](const at::Tensor& data, const Tensors& states) {
        return listed(at::lstm(data, states, weights, biases, layers, 0.0, false, bidirectional,
                               /*batch_first=*/false));
      },
      [&](const at::Tensor& data, const at::Tensor& sizes, const Tensors& states) {
        return listed(
            at::lstm(data, sizes, states, weights, biases, layers, 0.0, false, bidirectional));
      });
  return {found[0], found[1], found[2]};
}

// Runs one of aten's functions of a single state.
template <typename Function>
std::tuple<at::Tensor, at::Tensor> single(Function function, const at::Tensor& input,
                                          const std::optional<at::Tensor>& lengths,
                                          const at::Tensor& h0, at::TensorList weights, bool biases,
                                          std::int64_t layers, bool bidirectional) {
  const auto found = run(
      input, lengths, {h0},
      [&](const at::Tensor& data, const Tensors& states) {
        const auto made = function(data, states[0], weights, biases, layers, 0.0, false,
                                   bidirectional, /*batch_first=*/false);
        return Tensors{std::get<0>(made), std::get<1>(made)};
      },
      [&](const at::Tensor& data, const at::Tensor& sizes, const Tensors& states) {
        const auto made =
            function(data, sizes, states[0], weights, biases, layers, 0.0, false, bidirectional);
        return Tensors{std::get<0>(made), std::get<1>(made)};
      });
  return {found[0], found[1]};
}

// aten's functions are overloaded: this lets one be passed on.
#define PASSED(function) [](const auto&... words) { return function(words...); }

std::tuple<at::Tensor, at::Tensor> gru(const at::Tensor& input,
                                       const std::optional<at::Tensor>& lengths,
                                       const at::Tensor& h0, at::TensorList weights, bool biases,
                                       std::int64_t layers, bool bidirectional) {
  return single(PASSED(at::gru), input, lengths, h0, weights, biases, layers, bidirectional);
}

std::tuple<at::Tensor, at::Tensor> rnn(const at::Tensor& input,
                                       const std::optional<at::Tensor>& lengths,
                                       const at::Tensor& h0, at::TensorList weights, bool biases,
                                       std::int64_t layers, bool bidirectional,
                                       std::string_view nonlinearity) {
  if (nonlinearity == "tanh") {
    return single(PASSED(at::rnn_tanh), input, lengths, h0, weights, biases, layers, bidirectional);
  }
  return single(PASSED(at::rnn_relu), input, lengths, h0, weights, biases, layers, bidirectional);
}

}  // namespace

TORCH_LIBRARY(torchyard_export, library) {
  library.def(
      "lstm(Tensor input, Tensor? lengths, Tensor h0, Tensor c0, Tensor[] weights, bool biases, "
      "int layers, bool bidirectional) -> (Tensor output, Tensor hn, Tensor cn)");
  library.def(
      "gru(Tensor input, Tensor? lengths, Tensor h0, Tensor[] weights, bool biases, int layers, "
      "bool bidirectional) -> (Tensor output, Tensor hn)");
  library.def(
      "rnn(Tensor input, Tensor? lengths, Tensor h0, Tensor[] weights, bool biases, int layers, "
      "bool bidirectional, str nonlinearity) -> (Tensor output, Tensor hn)");
}

TORCH_LIBRARY_IMPL(torchyard_export, CPU, library) {
  library.impl("lstm", lstm);
  library.impl("gru", gru);
  library.impl("rnn", rnn);
}
