// Recurrent kernels against the equations in double, on buffers of exactly the size that they may
// touch, with working memory full of NaN.
#include "recurrent/recurrent.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "elements.h"

namespace {

using torchyard::CellWeights;
using torchyard::DType;
using torchyard::RecurrentArgs;
using torchyard::RecurrentKernel;
using torchyard::RecurrentKind;
using torchyard::RecurrentSizes;

// Elements, and the numbers that they are.
struct Numbers {
  std::vector<unsigned char> bytes;
  std::vector<double> values;

  Numbers(DType dtype, int64_t count, std::mt19937& random, double size)
      : bytes(static_cast<size_t>(count) * element_size(dtype)) {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (int64_t i = 0; i < count; ++i) {
      unsigned char* at = bytes.data() + static_cast<size_t>(i) * element_size(dtype);
      write_element(dtype, at, static_cast<float>(size * uniform(random)));
      values.push_back(read_element(dtype, at));
    }
  }
};

struct Weights {
  Numbers w_ih, w_hh, b_ih, b_hh, w_hr;
};

struct Case {
  RecurrentSizes sizes;
  int64_t steps;
  int64_t batch;
  bool ragged;
  int threads;
};

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double dot(const std::vector<double>& row, int64_t at, const std::vector<double>& x) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += row[static_cast<size_t>(at) + i] * x[i];
  return sum;
}

// One step of one sequence.
void take(const RecurrentSizes& sizes, const Weights& w, const std::vector<double>& x,
          std::vector<double>* h, std::vector<double>* c) {
  const int64_t hidden = sizes.hidden;
  std::vector<double> from_x, from_h;
  for (int64_t r = 0; r < sizes.gates() * hidden; ++r) {
    const size_t row = static_cast<size_t>(r);
    from_x.push_back(dot(w.w_ih.values, r * static_cast<int64_t>(x.size()), x) +
                     w.b_ih.values[row]);
    from_h.push_back(dot(w.w_hh.values, r * sizes.outputs, *h) + w.b_hh.values[row]);
  }
  std::vector<double> next;
  for (int64_t j = 0; j < hidden; ++j) {
    const auto at = [&](int64_t gate) { return static_cast<size_t>(gate * hidden + j); };
    const auto sum = [&](int64_t gate) { return from_x[at(gate)] + from_h[at(gate)]; };
    double& cell = (*c)[static_cast<size_t>(j)];
    switch (sizes.kind) {
      case RecurrentKind::kLstm:
        cell = logistic(sum(1)) * cell + logistic(sum(0)) * std::tanh(sum(2));
        next.push_back(logistic(sum(3)) * std::tanh(cell));
        break;
      case RecurrentKind::kGru: {
        const double n = std::tanh(from_x[at(2)] + logistic(sum(0)) * from_h[at(2)]);
        const double z = logistic(sum(1));
        next.push_back((1.0 - z) * n + z * (*h)[static_cast<size_t>(j)]);
        break;
      }
      case RecurrentKind::kTanh:
        next.push_back(std::tanh(sum(0)));
        break;
      case RecurrentKind::kRelu:
        next.push_back(std::fmax(0.0, sum(0)));
        break;
    }
  }
  if (!sizes.projected) {
    *h = next;
    return;
  }
  for (int64_t p = 0; p < sizes.outputs; ++p) {
    (*h)[static_cast<size_t>(p)] = dot(w.w_hr.values, p * hidden, next);
  }
}

// Returns the greatest difference between the kernel's output and the equations'.
double error_of(const RecurrentKernel& kernel, const Case& c, std::mt19937& random) {
  const RecurrentSizes& s = c.sizes;
  const DType dtype = kernel.dtype;
  const int64_t cells = s.layers * s.directions;
  const double size = 1.0 / std::sqrt(static_cast<double>(s.hidden));
  std::vector<Weights> weights;
  std::vector<CellWeights> addresses;
  for (int64_t i = 0; i < cells; ++i) {
    const int64_t rows = s.gates() * s.hidden;
    const int64_t inputs = s.inputs_of(i / s.directions);
    weights.push_back({Numbers(dtype, rows * inputs, random, size),
                       Numbers(dtype, rows * s.outputs, random, size),
                       Numbers(dtype, rows, random, size), Numbers(dtype, rows, random, size),
                       Numbers(dtype, s.projected ? s.outputs * s.hidden : 0, random, size)});
  }
  for (const Weights& w : weights) {
    addresses.push_back({w.w_ih.bytes.data(), w.w_hh.bytes.data(), w.b_ih.bytes.data(),
                         w.b_hh.bytes.data(), s.projected ? w.w_hr.bytes.data() : nullptr});
  }
  const Numbers input(dtype, c.steps * c.batch * s.inputs, random, 1.0);
  const Numbers hidden(dtype, cells * c.batch * s.outputs, random, 1.0);
  const Numbers cell(dtype, cells * c.batch * s.hidden, random, 1.0);
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < c.batch; ++b) lengths.push_back(c.ragged ? 1 + b % c.steps : c.steps);

  const size_t packed_size = recurrent_packed_bytes(s, kernel);
  void* packed = nullptr;
  if (posix_memalign(&packed, 64, packed_size) != 0) return HUGE_VAL;
  std::memset(packed, 0xff, packed_size);
  recurrent_pack(s, addresses.data(), kernel, static_cast<std::byte*>(packed), c.threads);

  const int64_t columns = s.kind == RecurrentKind::kLstm  ? 5 * s.hidden + s.outputs
                          : s.kind == RecurrentKind::kGru ? 5 * s.hidden
                                                          : s.hidden;
  const int64_t width = s.directions * s.outputs;
  std::vector<unsigned char> output(static_cast<size_t>(c.steps * c.batch * width) *
                                    element_size(dtype));
  std::vector<unsigned char> hidden_out(hidden.bytes.size());
  std::vector<unsigned char> cell_out(cell.bytes.size());
  std::vector<float> reserve(static_cast<size_t>(cells * c.steps * c.batch * columns), NAN);
  RecurrentArgs args = {};
  args.sizes = s;
  args.steps = c.steps;
  args.batch = c.batch;
  args.input = input.bytes.data();
  args.input_step = c.batch * s.inputs;
  args.input_row = s.inputs;
  args.hidden = hidden.bytes.data();
  args.cell = cell.bytes.data();
  args.packed = static_cast<const std::byte*>(packed);
  args.lengths = c.ragged ? lengths.data() : nullptr;
  args.output = output.data();
  args.hidden_out = hidden_out.data();
  args.cell_out = cell_out.data();
  args.reserve = reserve.data();
  recurrent_forward(args, kernel, c.threads, true);
  std::free(packed);

  double worst = 0.0;
  for (const float value : reserve) worst = value == value ? worst : HUGE_VAL;
  std::vector<double> values = input.values;
  int64_t from = s.inputs;
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    std::vector<double> above(static_cast<size_t>(c.steps * c.batch * width), 0.0);
    for (int64_t d = 0; d < s.directions; ++d) {
      const int64_t index = layer * s.directions + d;
      for (int64_t b = 0; b < c.batch; ++b) {
        const int64_t row = index * c.batch + b;
        const auto part = [](const std::vector<double>& all, int64_t at, int64_t count) {
          return std::vector<double>(all.begin() + at, all.begin() + at + count);
        };
        std::vector<double> h = part(hidden.values, row * s.outputs, s.outputs);
        std::vector<double> state = part(cell.values, row * s.hidden, s.hidden);
        const int64_t length = lengths[static_cast<size_t>(b)];
        for (int64_t i = 0; i < length; ++i) {
          const int64_t t = d == 0 ? i : length - 1 - i;
          take(s, weights[static_cast<size_t>(index)], part(values, (t * c.batch + b) * from, from),
               &h, &state);
          for (int64_t p = 0; p < s.outputs; ++p) {
            above[static_cast<size_t>((t * c.batch + b) * width + d * s.outputs + p)] =
                h[static_cast<size_t>(p)];
          }
        }
        for (int64_t p = 0; p < s.outputs; ++p) {
          const double got =
              read_element(dtype, hidden_out.data() + static_cast<size_t>(row * s.outputs + p) *
                                                          element_size(dtype));
          worst = std::fmax(worst, std::fabs(got - h[static_cast<size_t>(p)]));
        }
      }
    }
    values = above;
    from = width;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double got = read_element(dtype, output.data() + i * element_size(dtype));
    worst = std::fmax(worst, got == got ? std::fabs(got - values[i]) : HUGE_VAL);
  }
  return worst;
}

}  // namespace

int main() {
  std::mt19937 random(0);
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t k = 0; k < torchyard::kRecurrentKernels.size(); ++k) {
    const RecurrentKernel& kernel = torchyard::kRecurrentKernels[k];
    if ((kernel.required & ~features) != 0) continue;
    // Roundings of the hidden state, carried through a few steps and layers.
    const double allowed = kernel.dtype == DType::kFloat32    ? 2e-6
                           : kernel.dtype == DType::kBFloat16 ? 6e-2
                                                              : 8e-3;
    for (int64_t kind = 0; kind < torchyard::kRecurrentKinds; ++kind) {
      for (const int64_t hidden : {1, 15, 33, 130}) {
        for (const int64_t batch : {1, 7, 13}) {
          const RecurrentKind of = static_cast<RecurrentKind>(kind);
          const bool projected = of == RecurrentKind::kLstm && hidden > 1 && batch > 1;
          const RecurrentSizes sizes = {
              of, 5, hidden, projected ? hidden / 2 : hidden, 2, 1 + batch % 2, projected};
          const Case c = {sizes, 5, batch, batch == 7, 1 + cases % 3};
          const double error = error_of(kernel, c, random);
          ++cases;
          if (error <= allowed) continue;
          ++failures;
          std::printf("%s kind %d H %d B %d: error %g, allowed %g\n", kernel.name,
                      static_cast<int>(kind), static_cast<int>(hidden), static_cast<int>(batch),
                      error, allowed);
        }
      }
    }
  }
  std::printf("cases run: %d, failures: %d\n", cases, failures);
  return failures == 0 && cases > 0 ? 0 : 1;
}
