// As attention_test.cc, for the backward kernels.
#include "attention/backward/backward.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "attention/inputs.h"

namespace {

using torchyard::BackwardArgs;
using torchyard::BackwardKernel;

using Numbers = std::vector<double>;

// A gradient as it should be, and the sum of the magnitudes that made it.
struct Expected {
  Numbers sum, magnitude;
  explicit Expected(int64_t count)
      : sum(static_cast<size_t>(count)), magnitude(static_cast<size_t>(count)) {}
  void add(int64_t at, double x, double size) {
    sum[static_cast<size_t>(at)] += x;
    magnitude[static_cast<size_t>(at)] += size;
  }
};

class Case {
 public:
  Case(const BackwardKernel& kernel, const Shape& s)
      : kernel_(kernel),
        s_(s),
        query_(kernel.dtype, s.batches, s.query_heads, s.rows, s.head_dim, 1),
        key_(kernel.dtype, s.batches, s.key_heads, s.keys, s.head_dim, 3),
        value_(kernel.dtype, s.batches, s.key_heads, s.keys, s.value_dim, 0),
        out_(kernel.dtype, s.batches, s.query_heads, s.rows, s.value_dim, 2),
        grad_out_(kernel.dtype, s.batches, s.query_heads, s.rows, s.value_dim, 1),
        grad_query_(kernel.dtype, s.batches, s.query_heads, s.rows, s.head_dim, 1),
        grad_key_(kernel.dtype, s.batches, s.key_heads, s.keys, s.head_dim, 0),
        grad_value_(kernel.dtype, s.batches, s.key_heads, s.keys, s.value_dim, 5),
        lse_(static_cast<size_t>(s.batches * s.query_heads * s.rows)),
        grad_lse_(lse_.size()),
        query_true_(s.batches * s.query_heads * s.rows * s.head_dim),
        key_true_(s.batches * s.key_heads * s.keys * s.head_dim),
        value_true_(s.batches * s.key_heads * s.keys * s.value_dim) {
    fill(query_, s.batches, s.query_heads, s.rows, s.head_dim);
    fill(key_, s.batches, s.key_heads, s.keys, s.head_dim);
    fill(value_, s.batches, s.key_heads, s.keys, s.value_dim);
    fill(grad_out_, s.batches, s.query_heads, s.rows, s.value_dim);
    std::normal_distribution<float> normal;
    for (float& x : grad_lse_) x = normal(generator);
    if (s.block_rows != 0) mask_.reset(new Mask(s));
    for (int64_t b = 0; b < s.batches; ++b) {
      for (int64_t h = 0; h < s.query_heads; ++h) {
        for (int64_t r = 0; r < s.rows; ++r) expect_row(b, h, r);
      }
    }
  }

  // Returns the number of wrong elements.
  int64_t run() {
    BackwardArgs args{};
    args.call.batches = s_.batches;
    args.call.query_heads = s_.query_heads;
    args.call.key_heads = s_.key_heads;
    args.call.query_rows = s_.rows;
    args.call.keys = s_.keys;
    args.call.head_dim = s_.head_dim;
    args.call.value_dim = s_.value_dim;
    args.call.query = strided(query_);
    args.call.key = strided(key_);
    args.call.value = strided(value_);
    args.call.out = output(out_);
    args.call.lse = lse_.data();
    args.call.scale = kScale;
    args.call.mask = mask_ == nullptr ? nullptr : &mask_->blocks;
    args.grad_out = strided(grad_out_);
    args.grad_lse = grad_lse_.data();
    args.grad_query = output(grad_query_);
    args.grad_key = output(grad_key_);
    args.grad_value = output(grad_value_);
    if (torchyard::attention_backward(args, kernel_, s_.threads, true) != torchyard::Status::kOk) {
      return 1;
    }
    return wrong(grad_query_, query_true_, s_.query_heads, s_.rows, s_.head_dim) +
           wrong(grad_key_, key_true_, s_.key_heads, s_.keys, s_.head_dim) +
           wrong(grad_value_, value_true_, s_.key_heads, s_.keys, s_.value_dim);
  }

 private:
  static constexpr double kScale = 0.4;

  static torchyard::Strided strided(const Buffer& x) {
    return {x.data(), x.batch_stride(), x.head_stride(), x.row_stride()};
  }
  static torchyard::StridedOutput output(const Buffer& x) {
    return {x.data(), x.batch_stride(), x.head_stride(), x.row_stride()};
  }

  // Sets out and lse of a row, and adds what it brings to each gradient.
  void expect_row(int64_t b, int64_t h, int64_t r) {
    const int64_t g = h / (s_.query_heads / s_.key_heads);
    const int64_t row = (b * s_.query_heads + h) * s_.rows + r;
    const int64_t first_key = (b * s_.key_heads + g) * s_.keys;
    Numbers p(static_cast<size_t>(s_.keys), -std::numeric_limits<double>::infinity());
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < s_.keys; ++k) {
      if (mask_ != nullptr && mask_->visible[static_cast<size_t>(r * s_.keys + k)] == 0) continue;
      double sum = 0;
      for (int64_t i = 0; i < s_.head_dim; ++i)
        sum += query_.get(b, h, r, i) * key_.get(b, g, k, i);
      p[static_cast<size_t>(k)] = sum * kScale;
      largest = std::max(largest, sum * kScale);
    }
    double total = 0;
    for (const double x : p) total += std::isinf(x) ? 0 : std::exp(x - largest);
    const double lse = largest + std::log(total);
    lse_[static_cast<size_t>(row)] = static_cast<float>(lse);
    for (double& x : p) x = std::isinf(x) ? 0 : std::exp(x - lse);
    double delta = -grad_lse_[static_cast<size_t>(row)];
    for (int64_t i = 0; i < s_.value_dim; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < s_.keys; ++k) {
        if (p[static_cast<size_t>(k)] != 0)
          sum += p[static_cast<size_t>(k)] * value_.get(b, g, k, i);
      }
      out_.set(b, h, r, i, static_cast<float>(sum));
      delta += grad_out_.get(b, h, r, i) * sum;
    }
    for (int64_t k = 0; k < s_.keys; ++k) {
      const double weight = p[static_cast<size_t>(k)];
      if (weight == 0) continue;
      double product = 0;
      double size = std::abs(delta);
      for (int64_t i = 0; i < s_.value_dim; ++i) {
        const double grad = grad_out_.get(b, h, r, i);
        const double term = grad * value_.get(b, g, k, i);
        product += term;
        size += std::abs(term);
        value_true_.add((first_key + k) * s_.value_dim + i, weight * grad, weight * std::abs(grad));
      }
      const double slope = weight * (product - delta) * kScale;
      size *= weight * kScale;
      for (int64_t i = 0; i < s_.head_dim; ++i) {
        const double q = query_.get(b, h, r, i);
        const double x = key_.get(b, g, k, i);
        query_true_.add(row * s_.head_dim + i, slope * x, size * std::abs(x));
        key_true_.add((first_key + k) * s_.head_dim + i, slope * q, size * std::abs(q));
      }
    }
  }

  int64_t wrong(const Buffer& got, const Expected& expected, int64_t heads, int64_t rows,
                int64_t size) const {
    // bfloat16: the roundings of out, weights, slopes and results; float32: those of sums and of
    // the lse, generously. float16: of out and results, the latter at least 2^-25.
    const double bound = kernel_.dtype == DType::kFloat32   ? 0x1p-16
                         : kernel_.dtype == DType::kFloat16 ? 0x1p-9
                                                            : 0x1p-6;
    int64_t count = 0;
    size_t at = 0;
    for (int64_t b = 0; b < s_.batches; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < size; ++i, ++at) {
            const double error = std::abs(got.get(b, h, r, i) - expected.sum[at]);
            count += !(error <= bound * expected.magnitude[at] + 0x1p-25);
          }
        }
      }
    }
    return count;
  }

  const BackwardKernel& kernel_;
  const Shape& s_;
  Buffer query_, key_, value_, out_, grad_out_, grad_query_, grad_key_, grad_value_;
  std::vector<float> lse_, grad_lse_;
  Expected query_true_, key_true_, value_true_;
  std::unique_ptr<Mask> mask_;
};

const Shape kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 0, 0, 1},          {1, 1, 1, 0, 5, 8, 8, 0, 0, 2},
    {1, 2, 1, 5, 0, 8, 8, 0, 0, 1},          {2, 2, 2, 7, 63, 17, 5, 0, 0, 1},
    {1, 3, 1, 13, 65, 40, 72, 0, 0, 2},      {1, 2, 2, 6, 128, 64, 64, 0, 0, 1},
    {1, 1, 1, 137, 127, 80, 96, 0, 0, 3},    {1, 1, 1, 11, 600, 33, 31, 0, 0, 1},
    {1, 1, 1, 4, 70, 256, 255, 0, 0, 1},     {2, 4, 2, 50, 190, 24, 48, 16, 64, 2},
    {1, 2, 1, 131, 257, 16, 8, 128, 128, 2}, {1, 1, 1, 37, 211, 7, 9, 10, 20, 1},
    {1, 1, 1, 37, 211, 66, 130, 7, 13, 2},   {1, 1, 1, 20, 700, 12, 12, 1, 1000, 1},
    {3, 2, 2, 65, 64, 15, 16, 64, 64, 7},    {1, 2, 1, 3, 1100, 20, 20, 3, 192, 4},
    {1, 1, 1, 2, 90, 10, 10, 300, 1, 1},     {5, 4, 2, 300, 400, 9, 11, 128, 128, 3},
};

}  // namespace

int main() {
  const torchyard::FeatureSet features = torchyard::detect_features();
  int cases = 0;
  int failures = 0;
  for (size_t i = 0; i < torchyard::kBackwardKernels.size(); ++i) {
    const BackwardKernel& kernel = torchyard::kBackwardKernels[i];
    if ((kernel.required & ~features) != 0) {
      std::printf("%s: not run, this processor lacks its instructions\n", kernel.name);
      continue;
    }
    int case_number = 0;
    for (const Shape& shape : kShapes) {
      ++cases;
      generator.seed(static_cast<unsigned>(case_number));  // whatever ran before
      const int64_t wrong = Case(kernel, shape).run();
      if (wrong != 0) {
        ++failures;
        std::printf("%s, shape %d: %d wrong elements\n", kernel.name, case_number,
                    static_cast<int>(wrong));
      }
      ++case_number;
    }
  }
  std::printf("%d cases, %d failures\n", cases, failures);
  return cases == 0 || failures != 0;
}
