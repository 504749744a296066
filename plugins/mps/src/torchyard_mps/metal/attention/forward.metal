// The forward pass of attention: FlashAttention-2 (arXiv 2307.08691), algorithm 1, by simdgroup
// matrices. The launch defines T, SIZE, VALUE_SIZE, BLOCK, KEY_BLOCK, LISTS, MAXIMA, SCORE and VISIBLE
// above it, and writes the captured tensors' parameters in the place of CAPTURED.
//
//   out[q] = sum_k exp(score[q, k] - lse[q]) value[k],  lse[q] = log sum_k exp(score[q, k])
//
// over visible k, with score = SCORE(scale * query . key). Grid: tiles of 32 rows, batch * head; 128
// threads, of which each simdgroup of 32 computes 8 rows. Sums are float's.

constant constexpr int kChunks = (SIZE + kTile - 1) / kTile;
constant constexpr int kValueChunks = (VALUE_SIZE + kTile - 1) / kTile;

// What ``sizes`` holds: strides of four tensors, each of batch, head, row and column; then these.
constant constexpr int kQuery = 0, kKey = 4, kValue = 8, kOut = 12;
constant constexpr int kHeads = 16, kGroup = 17, kQueries = 18, kKeys = 19, kMaskBatches = 20;
constant constexpr int kMaskHeads = 21, kMaskBlocks = 22, kPartialWidth = 23, kFullWidth = 24;

kernel void attention_forward(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]],
    device const T* value [[buffer(2)]], device T* out [[buffer(3)]],
    device float* lse [[buffer(4)]], device float* max_scores [[buffer(5)]],
    device const int* partial_counts [[buffer(6)]], device const int* partial_blocks [[buffer(7)]],
    device const int* full_counts [[buffer(8)]], device const int* full_blocks [[buffer(9)]],
    device const uchar* bits [[buffer(10)]], device const long* first_partial [[buffer(11)]],
    constant long* sizes [[buffer(12)]], constant float& scale [[buffer(13)]],
    constant long* score_layout [[buffer(14)]], constant long* mask_layout [[buffer(15)]],
    CAPTURED uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]], uint lane_index [[thread_index_in_simdgroup]],
    uint simd_index [[simdgroup_index_in_threadgroup]]) {
  threadgroup T tile[kTile * kTile];
  threadgroup float scores[kTile * kTile];
  threadgroup T weights[kTile * kTile];
  threadgroup float factors[kTile * 8];
  threadgroup uint visible[kTile];  // of each row a bit for each key of the step
  threadgroup bool odd_values[kThreads / 32];

  const int lane = int(lane_index), simd = int(simd_index), thread_index = int(me);
  const int heads = int(sizes[kHeads]), h = int(group.y) % heads, b = int(group.y) / heads;
  const int kv_head = h / int(sizes[kGroup]);
  const int q_length = int(sizes[kQueries]), kv_length = int(sizes[kKeys]);
  device const T* queries = query + b * sizes[kQuery] + h * sizes[kQuery + 1];
  device const T* keys = key + b * sizes[kKey] + kv_head * sizes[kKey + 1];
  device const T* values = value + b * sizes[kValue] + kv_head * sizes[kValue + 1];

  // Tiles do not cross blocks, whose size need not be a multiple of theirs.
  int block = 0, first = int(group.x) * kTile, end = q_length;
  if (LISTS) {
    const int per_block = tiles_of(q_length, BLOCK);
    block = int(group.x) / per_block;
    first = block * BLOCK + int(group.x) % per_block * kTile;
    end = min(q_length, (block + 1) * BLOCK);
  }

  simdgroup_matrix<T, 8, 8> rows[kChunks * 4];
  for (int chunk = 0; chunk < kChunks; chunk++) {
    load_tile(tile, queries, first, end, chunk * kTile, SIZE, sizes[kQuery + 2], sizes[kQuery + 3],
              thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int part = 0; part < 4; part++)
      simdgroup_load(rows[chunk * 4 + part], tile + simd * 8 * kTile + part * 8, kTile);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  simdgroup_matrix<float, 8, 8> total[kValueChunks * 4];
  for (int part = 0; part < kValueChunks * 4; part++)
    total[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  // Four lanes, a quadgroup, have a row; each computes 8 of its 32 keys.
  const int inner_row = simd * 8 + lane / 4, row = first + inner_row, quarter = lane % 4 * 8;
  float weight = 0.0f, greatest = -INFINITY;

  long list = 0;
  int per_block = 1, partial = (kv_length + kTile - 1) / kTile, steps = partial;
  if (LISTS) {
    const long mask_row = (b % sizes[kMaskBatches]) * sizes[kMaskHeads] + h % sizes[kMaskHeads];
    list = mask_row * sizes[kMaskBlocks] + block;
    per_block = tiles_of(kv_length, KEY_BLOCK);
    partial = partial_counts[list] * per_block;
    steps = partial + full_counts[list] * per_block;
  }
  for (int step = 0; step < steps; step++) {
    int key_block = 0, first_key = step * kTile, stop = kv_length;
    long slot = -1;  // of the block's bits; those of a block that is visible whole are none
    if (LISTS) {
      const bool is_partial = step < partial;
      const int place = (is_partial ? step : step - partial) / per_block;
      key_block = is_partial ? partial_blocks[list * sizes[kPartialWidth] + place]
                             : full_blocks[list * sizes[kFullWidth] + place];
      first_key = key_block * KEY_BLOCK + step % per_block * kTile;
      stop = min(kv_length, (key_block + 1) * KEY_BLOCK);
      slot = is_partial ? first_partial[list] + place : -1;
    }

    simdgroup_matrix<float, 8, 8> products[4];
    for (int part = 0; part < 4; part++)
      products[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int chunk = 0; chunk < kChunks; chunk++) {
      load_tile(tile, keys, first_key, stop, chunk * kTile, SIZE, sizes[kKey + 2], sizes[kKey + 3],
                thread_index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int part = 0; part < 4; part++)
        for (int of = 0; of < 4; of++) {
          simdgroup_matrix<T, 8, 8> columns;
          simdgroup_load(columns, tile + part * 8 * kTile + of * 8, kTile, ulong2(0, 0), true);
          simdgroup_multiply_accumulate(products[part], rows[chunk * 4 + of], columns,
                                        products[part]);
        }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (int part = 0; part < 4; part++)
      simdgroup_store(products[part], scores + simd * 8 * kTile + part * 8, kTile);
    simdgroup_barrier(mem_flags::mem_threadgroup);

    float own[8], top = -INFINITY;
    uint bits_of_row = 0u;
    for (int j = 0; j < 8; j++) {
      const int k = first_key + quarter + j, q = row;
      const float s = scores[inner_row * kTile + quarter + j] * scale;
      const bool seen = row < end && k < stop && (step >= partial || VISIBLE);
      own[j] = seen ? SCORE : -INFINITY;
      bits_of_row |= seen ? 1u << uint(quarter + j) : 0u;
      top = max(top, own[j]);
    }
    top = max(greatest, quad_max(top));
    const float base = top == -INFINITY ? 0.0f : top;
    const float rescale = precise::exp(greatest - base);
    float sum = 0.0f;
    for (int j = 0; j < 8; j++) {
      const float part = precise::exp(own[j] - base);
      sum += part;
      weights[inner_row * kTile + quarter + j] = T(part);
    }
    weight = weight * rescale + quad_sum(sum);
    bits_of_row = quad_or(bits_of_row);
    if (lane % 4 == 0) visible[inner_row] = bits_of_row;
    greatest = top;
    for (int j = 0; j < 2; j++) factors[inner_row * 8 + lane % 4 * 2 + j] = rescale;
    simdgroup_barrier(mem_flags::mem_threadgroup);

    // Element by element, since the product with a diagonal matrix would carry NaN between rows.
    // Which elements a lane has is the same for all matrices of a type.
    simdgroup_matrix<float, 8, 8> factor;
    simdgroup_load(factor, factors + simd * 64, 8);
    for (int part = 0; part < kValueChunks * 4; part++)
      total[part].thread_elements() *= factor.thread_elements();
    for (int chunk = 0; chunk < kValueChunks; chunk++) {
      const bool odd = load_tile(tile, values, first_key, stop, chunk * kTile, VALUE_SIZE,
                                 sizes[kValue + 2], sizes[kValue + 3], thread_index);
      const bool odd_in_simdgroup = simd_any(odd);
      if (lane == 0) odd_values[simd] = odd_in_simdgroup;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (odd_values[0] || odd_values[1] || odd_values[2] || odd_values[3]) {
        // A matrix product would carry NaN to rows that do not see its key: 0 times NaN is NaN. So
        // element by element, each lane a column, through the memory of the scores.
        for (int part = 0; part < 4; part++)
          simdgroup_store(total[chunk * 4 + part], scores + simd * 8 * kTile + part * 8, kTile);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (int i = simd * 8; i < simd * 8 + 8; i++) {
          float sum_of_row = scores[i * kTile + lane];
          for (int k = 0; k < kTile; k++)
            if ((visible[i] >> uint(k) & 1u) != 0u)
              sum_of_row += float(weights[i * kTile + k]) * float(tile[k * kTile + lane]);
          scores[i * kTile + lane] = sum_of_row;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (int part = 0; part < 4; part++)
          simdgroup_load(total[chunk * 4 + part], scores + simd * 8 * kTile + part * 8, kTile);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        continue;
      }
      for (int of = 0; of < 4; of++) {
        simdgroup_matrix<T, 8, 8> left;
        simdgroup_load(left, weights + simd * 8 * kTile + of * 8, kTile);
        for (int part = 0; part < 4; part++) {
          simdgroup_matrix<T, 8, 8> right;
          simdgroup_load(right, tile + of * 8 * kTile + part * 8, kTile);
          simdgroup_multiply_accumulate(total[chunk * 4 + part], left, right,
                                        total[chunk * 4 + part]);
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }

  const bool empty = weight == 0.0f;
  const float divisor = empty ? 1.0f : weight;
  if (row < end && lane % 4 == 0) {
    const long place = long(group.y) * q_length + row;
    lse[place] = empty ? -INFINITY : greatest + precise::log(divisor);
    // The greatest of NaN and others is NaN.
    if (MAXIMA) max_scores[place] = weight == weight ? greatest : weight;
  }
  device T* results = out + b * sizes[kOut] + h * sizes[kOut + 1];
  for (int chunk = 0; chunk < kValueChunks; chunk++) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int part = 0; part < 4; part++)
      simdgroup_store(total[chunk * 4 + part], scores + simd * 8 * kTile + part * 8, kTile);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < 8; i++) {
      const float by = simd_shuffle(divisor, ushort(i * 4));
      const int at = first + simd * 8 + i, column = chunk * kTile + lane;
      if (at < end && column < VALUE_SIZE)
        results[at * sizes[kOut + 2] + column * sizes[kOut + 3]] =
            T(scores[(simd * 8 + i) * kTile + lane] / by);
    }
  }
}
