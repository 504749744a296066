// Attention over all keys from attention over parts of them: online softmax (arXiv 1805.02867), section
// 3.1. The launch defines T and MAXIMA above it.
//
//   out[q] = sum_p exp(lse_p[q] - lse[q]) out_p[q],  lse[q] = log sum_p exp(lse_p[q])
//
// Parts are added in their order, and one that shows a row no key changes none of its bits. Grid:
// threads, each of which computes elements of out.

// What ``sizes`` holds: parts, rows of all heads and batches, columns.
constant constexpr int kParts = 0, kRows = 1, kColumns = 2;

kernel void attention_merge(
    device const float* part_out [[buffer(0)]], device const float* part_lse [[buffer(1)]],
    device const float* part_maxima [[buffer(2)]], device T* out [[buffer(3)]],
    device float* lse [[buffer(4)]], device float* max_scores [[buffer(5)]],
    constant long* sizes [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint me [[thread_index_in_threadgroup]],
    uint2 threads [[threads_per_threadgroup]]) {
  const long parts = sizes[kParts], rows = sizes[kRows], columns = sizes[kColumns];
  const long all = long(groups.x) * threads.x;
  for (long at = long(group.x) * threads.x + me; at < rows * columns; at += all) {
    const long row = at / columns, column = at % columns;
    float top = -INFINITY;
    for (long part = 0; part < parts; part++) top = max(top, part_lse[part * rows + row]);
    const float base = top == -INFINITY ? 0.0f : top;
    float total = 0.0f, weight = 0.0f;
    for (long part = 0; part < parts; part++) {
      const long place = part * rows + row;
      const float share = precise::exp(part_lse[place] - base);
      weight += share;
      total += share * part_out[place * columns + column];
    }
    const bool empty = weight == 0.0f;
    const float divisor = empty ? 1.0f : weight;
    out[at] = T(total / divisor);
    if (column != 0) continue;
    lse[row] = empty ? -INFINITY : base + precise::log(divisor);
    if (!MAXIMA) continue;
    float greatest = -INFINITY;
    for (long part = 0; part < parts; part++) {
      const float found = part_maxima[part * rows + row];
      // The greatest of NaN and others is NaN.
      greatest = found != found || greatest != greatest ? NAN : max(greatest, found);
    }
    max_scores[row] = greatest;
  }
}
