// Products of rows with a weight, in any of the forms that ``linear/1`` has. The launch defines above it
// T, of x; Out, of the result; Stored and Scale, of the weight's tensors; FORM: 0 a plain weight, 1 and 2
// panels with so many products side by side, 8 and 4 codes of so many bits; GROUP, the products that
// have a scale in common, 0 for all of an output; ZEROS, whether codes have zeros of their own; BIAS;
// Captured, the pointers to the tensors that functions captured, and CAPTURED, them as buffers; BEFORE and
// AFTER, the functions of an element x and of y, or where GATED of ``gate`` and ``up``, and of the elements
// of captured tensors at (row, column) of x or of the result, with the rows of all batches in order.
//
//   y[m, n] = sum_k BEFORE(x[m, k]) W[n, k] + bias[n],  out[m, n] = AFTER(y[m, n])
//
// Where GATED the weight has twice as many outputs: those of gate, then those of up.
// Factors and sums are float's. Grid: tiles of 32 rows and 32 outputs, batch; 128 threads, of which each
// simdgroup of 32 computes 8 rows.

constant constexpr int kTile = 32;
constant constexpr int kThreads = 128;

// What ``sizes`` holds: strides of x and of a plain weight, each of batch, row and column; then these, of
// which words are those of a panel; then strides of rows and columns of each captured tensor.
constant constexpr int kX = 0, kWeight = 3, kRows = 6, kOutputs = 7, kDepth = 8, kWords = 9;
constant constexpr int kGroups = 10;

inline float weight_at(device const Stored* weight, device const Scale* scales,
                       device const uchar* zeros, constant long* sizes, long batch, long n, long k) {
  const long words = sizes[kWords];
  if (FORM == 0)
    return float(weight[batch * sizes[kWeight] + n * sizes[kWeight + 1] + k * sizes[kWeight + 2]]);
  if (FORM == 1) return float(weight[(n / 32 * words + k) * 32 + n % 32]);
  if (FORM == 2) return float(weight[(n / 32 * words + k / 2) * 64 + n % 32 * 2 + k % 2]);
  const long word = k / (FORM == 8 ? 4 : 8);
  int code = int(weight[(n / 64 * words + word) * 256 + n % 64 * 4 + k % 4]);
  if (FORM == 4) code = code >> (k / 4 % 2 * 4) & 15;
  const long group = GROUP ? k / max(GROUP, 1) : 0;
  const long place = (n / 64 * sizes[kGroups] + group) * 64 + n % 64;
  const int zero = ZEROS ? int(zeros[place]) : FORM == 8 ? 128 : 8;
  return float(code - zero) * float(scales[place]);
}

// Rounded to T, as the contract has it.
inline float before(float x, long row, long column, Captured captured, constant long* sizes) {
  return float(T(BEFORE));
}
inline Out after(float y, float up, long row, long column, Captured captured,
                 constant long* sizes) {
  const float gate = y;
  return Out(AFTER);
}

kernel void linear_product(
    device const T* x [[buffer(0)]], device const Stored* weight [[buffer(1)]],
    device const Scale* scales [[buffer(2)]], device const uchar* zeros [[buffer(3)]],
    device const T* bias [[buffer(4)]], device Out* out [[buffer(5)]],
    constant long* sizes [[buffer(6)]], CAPTURED uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd_index [[simdgroup_index_in_threadgroup]]) {
  threadgroup float left[kTile * kTile], right[kTile * kTile];
  threadgroup float ups[GATED ? kTile * kTile : 1];

  const Captured captured = {CAPTURED};
  const int simd = int(simd_index);
  const long row_count = sizes[kRows], outputs = sizes[kOutputs], depth = sizes[kDepth];
  const long row_tiles = (row_count + kTile - 1) / kTile, batch = group.y;
  // Threadgroups side by side read the same outputs' weights.
  const long first_row = long(group.x) % row_tiles * kTile;
  const long first_output = long(group.x) / row_tiles * kTile;
  x += batch * sizes[kX];

  simdgroup_matrix<float, 8, 8> sums[4], up_sums[4];
  for (int part = 0; part < 4; part++)
    sums[part] = up_sums[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (long first = 0; first < depth; first += kTile) {
    for (int i = int(me); i < kTile * kTile; i += kThreads) {
      const long row = first_row + i / kTile, n = first_output + i / kTile, k = first + i % kTile;
      left[i] = row < row_count && k < depth
                    ? before(float(x[row * sizes[kX + 1] + k * sizes[kX + 2]]),
                             batch * row_count + row, k, captured, sizes)
                    : 0.0f;
      right[i] = n < outputs && k < depth
                     ? weight_at(weight, scales, zeros, sizes, batch, n, k)
                     : 0.0f;
      if (GATED)
        ups[i] = n < outputs && k < depth
                     ? weight_at(weight, scales, zeros, sizes, batch, n + outputs, k)
                     : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int of = 0; of < 4; of++) {
      simdgroup_matrix<float, 8, 8> a;
      simdgroup_load(a, left + simd * 8 * kTile + of * 8, kTile);
      for (int part = 0; part < 4; part++) {
        simdgroup_matrix<float, 8, 8> b;
        simdgroup_load(b, right + part * 8 * kTile + of * 8, kTile, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(sums[part], a, b, sums[part]);
        if (GATED) {
          simdgroup_load(b, ups + part * 8 * kTile + of * 8, kTile, ulong2(0, 0), true);
          simdgroup_multiply_accumulate(up_sums[part], a, b, up_sums[part]);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int part = 0; part < 4; part++) {
    simdgroup_store(sums[part], left + simd * 8 * kTile + part * 8, kTile);
    if (GATED) simdgroup_store(up_sums[part], ups + simd * 8 * kTile + part * 8, kTile);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const long n = first_output + lane;
  for (int i = simd * 8; i < simd * 8 + 8; i++) {
    const long row = first_row + i;
    if (row >= row_count || n >= outputs) continue;
    const float y = left[i * kTile + lane] + (BIAS ? float(bias[n]) : 0.0f);
    float up = 0.0f;
    if (GATED) up = ups[i * kTile + lane] + (BIAS ? float(bias[n + outputs]) : 0.0f);
    const long flat_row = batch * row_count + row;
    out[flat_row * outputs + n] = after(y, up, flat_row, n, captured, sizes);
  }
}
