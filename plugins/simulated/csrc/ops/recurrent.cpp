#include "ops/recurrent.h"

#include <ATen/ATen.h>

#include <optional>
#include <tuple>

namespace torchyard::simulated {

namespace {

using at::Tensor;

// Gates [batch, n * hidden] with their bias [n * hidden], where there is one.
Tensor biased(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

Tensor sigmoid_slope(const Tensor& sigmoid) { return (1 - sigmoid) * sigmoid; }

Tensor tanh_slope(const Tensor& tanh) { return 1 - tanh * tanh; }

Tensor bias_gradient(const Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0) : Tensor();
}

Tensor or_zeros(const std::optional<Tensor>& gradient, const Tensor& like) {
  return gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(like);
}

// i, f, o = sigmoid, c = tanh of the gates; cy = f cx + i c; hy = o tanh(cy).
// The workspace holds i, f, c, o.
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input_gates, const Tensor& hidden_gates,
                                        const Tensor& cx, const std::optional<Tensor>& input_bias,
                                        const std::optional<Tensor>& hidden_bias) {
  const auto gates =
      (biased(input_gates, input_bias) + biased(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto i = gates[0].sigmoid();
  const auto f = gates[1].sigmoid();
  const auto c = gates[2].tanh();
  const auto o = gates[3].sigmoid();
  const auto cy = f * cx + i * c;
  return {o * cy.tanh(), cy, at::cat({i, f, c, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_backward(const std::optional<Tensor>& grad_hy,
                                                 const std::optional<Tensor>& grad_cy,
                                                 const Tensor& cx, const Tensor& cy,
                                                 const Tensor& workspace, bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const auto &i = gates[0], &f = gates[1], &c = gates[2], &o = gates[3];
  const auto hy = or_zeros(grad_hy, cy);
  const auto tanh_cy = cy.tanh();
  const auto grad_c = hy * o * tanh_slope(tanh_cy) + or_zeros(grad_cy, cy);
  const auto grad_gates = at::cat({grad_c * c * sigmoid_slope(i), grad_c * cx * sigmoid_slope(f),
                                   grad_c * i * tanh_slope(c), hy * tanh_cy * sigmoid_slope(o)},
                                  1);
  return {grad_gates, grad_c * f, bias_gradient(grad_gates, has_bias)};
}

// r, z = sigmoid, n = tanh(input + r hidden) of the gates; hy = n + z (hx - n).
// The workspace holds r, z, n, hx and the hidden part of n.
std::tuple<Tensor, Tensor> gru(const Tensor& input_gates, const Tensor& hidden_gates,
                               const Tensor& hx, const std::optional<Tensor>& input_bias,
                               const std::optional<Tensor>& hidden_bias) {
  const auto input = biased(input_gates, input_bias).chunk(3, 1);
  const auto hidden = biased(hidden_gates, hidden_bias).chunk(3, 1);
  const auto r = (input[0] + hidden[0]).sigmoid();
  const auto z = (input[1] + hidden[1]).sigmoid();
  const auto n = (input[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_backward(const Tensor& grad_hy,
                                                                const Tensor& workspace,
                                                                bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const auto &r = saved[0], &z = saved[1], &n = saved[2], &hx = saved[3], &hidden_n = saved[4];
  const auto grad_n = grad_hy * (1 - z) * tanh_slope(n);
  const auto grad_r = grad_n * hidden_n * sigmoid_slope(r);
  const auto grad_z = grad_hy * (hx - n) * sigmoid_slope(z);
  const auto grad_input = at::cat({grad_r, grad_z, grad_n}, 1);
  const auto grad_hidden = at::cat({grad_r, grad_z, grad_n * r}, 1);
  return {grad_input, grad_hidden, grad_hy * z, bias_gradient(grad_input, has_bias),
          bias_gradient(grad_hidden, has_bias)};
}

}  // namespace

void register_recurrent_cells(torch::Library& aten) {
  aten.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm));
  aten.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_backward));
  aten.impl("_thnn_fused_gru_cell", TORCH_FN(gru));
  aten.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_backward));
}

}  // namespace torchyard::simulated
