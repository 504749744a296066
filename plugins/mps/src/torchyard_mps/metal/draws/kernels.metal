// Kernels of draws. ``count`` elements are computed, whatever the launch's shape is; ``key`` is the
// draw's. Sources are the parts of this folder.

kernel void draw_exponential(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                             device float* out [[buffer(2)]],
                             uint first [[thread_position_in_grid]],
                             uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    torchyard::Numbers numbers = torchyard::numbers_of(key, at);
    out[at] = torchyard::next_exponential(numbers);
  }
}

kernel void draw_normal(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                        device float* out [[buffer(2)]], uint first [[thread_position_in_grid]],
                        uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    torchyard::Numbers numbers = torchyard::numbers_of(key, at);
    out[at] = torchyard::next_normal(numbers);
  }
}

kernel void draw_gamma(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                       device const float* shape [[buffer(2)]], device float* out [[buffer(3)]],
                       device float* log_out [[buffer(4)]], uint first [[thread_position_in_grid]],
                       uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    torchyard::Numbers numbers = torchyard::numbers_of(key, at);
    const torchyard::Gamma drawn = torchyard::next_gamma(numbers, shape[at]);
    out[at] = drawn.value;
    log_out[at] = drawn.log_value;
  }
}

kernel void draw_poisson(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                         device const float* rate [[buffer(2)]], device float* out [[buffer(3)]],
                         uint first [[thread_position_in_grid]],
                         uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    torchyard::Numbers numbers = torchyard::numbers_of(key, at);
    out[at] = torchyard::next_poisson(numbers, rate[at]);
  }
}

kernel void draw_binomial(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                          device const float* trials [[buffer(2)]],
                          device const float* probability [[buffer(3)]],
                          device float* out [[buffer(4)]], uint first [[thread_position_in_grid]],
                          uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    torchyard::Numbers numbers = torchyard::numbers_of(key, at);
    out[at] = torchyard::next_binomial(numbers, trials[at], probability[at]);
  }
}

kernel void draw_angle(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                       device const float* concentration [[buffer(2)]],
                       device float* out [[buffer(3)]], uint first [[thread_position_in_grid]],
                       uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    torchyard::Numbers numbers = torchyard::numbers_of(key, at);
    out[at] = torchyard::next_angle(numbers, concentration[at]);
  }
}

// d log x / d shape of gamma variables. Nothing is drawn; the key is not read.
kernel void gamma_slopes(constant ulong& count [[buffer(0)]], device const float* shape [[buffer(1)]],
                         device const float* value [[buffer(2)]],
                         device const float* log_value [[buffer(3)]],
                         device float* out [[buffer(4)]], uint first [[thread_position_in_grid]],
                         uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads)
    out[at] = torchyard::gamma_slope(shape[at], value[at], log_value[at]);
}

// The category whose logit - log(exponential) is greatest, which is Gumbel's way to draw it: one
// simdgroup an element, each lane some of the categories, whose numbers are their own.
kernel void draw_category(constant uint2& key [[buffer(0)]], constant ulong& count [[buffer(1)]],
                          constant ulong& categories [[buffer(2)]],
                          constant ulong& rows [[buffer(3)]],
                          device const float* logits [[buffer(4)]], device int* out [[buffer(5)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint groups [[threadgroups_per_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint width [[threads_per_simdgroup]],
                          uint simd [[simdgroup_index_in_threadgroup]],
                          uint simds [[simdgroups_per_threadgroup]]) {
  for (ulong at = group * simds + simd; at < count; at += groups * simds) {
    device const float* row = logits + at % rows * categories;
    float greatest = -INFINITY;
    int category = 0x7fffffff;
    for (ulong k = lane; k < categories; k += width) {
      torchyard::Numbers numbers = torchyard::numbers_of(key, at * categories + k);
      const float level = row[k] - torchyard::log(torchyard::next_exponential(numbers));
      if (level > greatest) {
        greatest = level;
        category = int(k);
      }
    }
    const float best = simd_max(greatest);
    category = simd_min(greatest == best ? category : 0x7fffffff);
    if (lane == 0u) out[at] = category;
  }
}
