// What the softmax takes from each row's gradients: FlashAttention-2 (arXiv 2307.08691), algorithm 2,
// line 4. The lse's gradient enters every score of its row with the row's weights, as minus delta does.
// The launch defines T above it.
//
//   delta[q] = grad_out[q] . out[q] - grad_lse[q]
//
// Grid: simdgroups, each of which computes rows.

// What ``sizes`` holds: strides of out and grad_out, each of batch, head, row and column; then these.
constant constexpr int kOut = 0, kGradOut = 4, kHeads = 8, kQueries = 9, kRows = 10, kColumns = 11;
constant constexpr int kHasLse = 12;

kernel void attention_delta(
    device const T* out [[buffer(0)]], device const T* grad_out [[buffer(1)]],
    device const float* grad_lse [[buffer(2)]], device float* delta [[buffer(3)]],
    constant long* sizes [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]],
    uint lanes [[threads_per_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  const long heads = sizes[kHeads], length = sizes[kQueries];
  const long all = long(groups.x) * simds;
  for (long at = long(group.x) * simds + simd; at < sizes[kRows]; at += all) {
    const long b = at / length / heads, h = at / length % heads, q = at % length;
    constant long* of = sizes + kOut;
    device const T* one = out + b * of[0] + h * of[1] + q * of[2];
    of = sizes + kGradOut;
    device const T* other = grad_out + b * of[0] + h * of[1] + q * of[2];
    float sum = 0.0f;
    for (long i = lane; i < sizes[kColumns]; i += lanes)
      sum += float(one[i * sizes[kOut + 3]]) * float(other[i * of[3]]);
    sum = simd_sum(sum);
    if (lane == 0) delta[at] = sizes[kHasLse] != 0 ? sum - grad_lse[at] : sum;
  }
}
