// The forward pass of attention: FlashAttention-2 (arXiv 2307.08691), algorithm 1, by simdgroup
// matrices. The launch defines T, OUT, SIZE, VALUE_SIZE, BLOCK, KEY_BLOCK, LISTS, FOLD, PAGE, MAXIMA,
// SCORE and VISIBLE above it, and writes the captured tensors' parameters in the place of CAPTURED.
//
//   out[q] = sum_k exp(score[q, k] - lse[q]) value[k],  lse[q] = log sum_k exp(score[q, k])
//
// over visible k, with score = SCORE(scale * query . key). Sums are float's. Each simdgroup of 32
// threads computes 8 rows. Grid: parts of keys * tiles of rows, batch * head / FOLD.
//
// Where queries are few, a tile has those of FOLD heads, which share a key head: its row r is query
// r / FOLD of head r % FOLD. Keys may then be cut into parts, each of which gives an out and lse of its
// own, that ``merge`` puts together. Keys may lie in pages of PAGE, as ``table`` lists them.

constant constexpr int kChunks = (SIZE + kTile - 1) / kTile;
constant constexpr int kValueChunks = (VALUE_SIZE + kTile - 1) / kTile;

// What ``sizes`` holds: strides of four tensors, each of batch, head, row and column; then these.
constant constexpr int kQuery = 0, kKey = 4, kValue = 8, kOut = 12;
constant constexpr int kHeads = 16, kGroup = 17, kQueries = 18, kKeys = 19, kMaskBatches = 20;
constant constexpr int kMaskHeads = 21, kMaskBlocks = 22, kPartialWidth = 23, kFullWidth = 24;
constant constexpr int kParts = 25, kPartSteps = 26, kAllRows = 27, kTableWidth = 28;

struct FoldedRows {
  long row_stride, head_stride;
};

inline long place_of(thread const FoldedRows& rows, int row) {
  return row / FOLD * rows.row_stride + row % FOLD * rows.head_stride;
}

struct Keys {
  device const int* pages;
  long row_stride, page_stride;
};

inline long place_of(thread const Keys& keys, int k) {
  if (PAGE == 0) return k * keys.row_stride;
  const int size = max(PAGE, 1);
  return keys.pages[k / size] * keys.page_stride + k % size * keys.row_stride;
}

kernel void attention_forward(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]],
    device const T* value [[buffer(2)]], device OUT* out [[buffer(3)]],
    device float* lse [[buffer(4)]], device float* max_scores [[buffer(5)]],
    device const int* partial_counts [[buffer(6)]], device const int* partial_blocks [[buffer(7)]],
    device const int* full_counts [[buffer(8)]], device const int* full_blocks [[buffer(9)]],
    device const uchar* bits [[buffer(10)]], device const long* first_partial [[buffer(11)]],
    constant long* sizes [[buffer(12)]], constant float& scale [[buffer(13)]],
    device const int* table [[buffer(14)]], device const int* lengths [[buffer(15)]],
    CAPTURED uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]], uint lane_index [[thread_index_in_simdgroup]],
    uint simd_index [[simdgroup_index_in_threadgroup]]) {
  threadgroup T tile[kTile * kTile];
  threadgroup float scores[kRows * kTile];
  threadgroup T weights[kRows * kTile];
  threadgroup float factors[kRows * 8];
  threadgroup uint visible[kRows];  // of each row a bit for each key of the step
  threadgroup bool odd_values[kSimds];

  const int lane = int(lane_index), simd = int(simd_index), thread_index = int(me);
  const int heads = int(sizes[kHeads]), folded = heads / FOLD, b = int(group.y) / folded;
  const int first_head = int(group.y) % folded * FOLD, kv_head = first_head / int(sizes[kGroup]);
  const int q_length = int(sizes[kQueries]), kv_length = int(sizes[kKeys]);
  const int parts = int(sizes[kParts]), part_steps = int(sizes[kPartSteps]);
  const int part_number = int(group.x) % parts, row_tile = int(group.x) / parts;
  const int key_count = PAGE == 0 ? kv_length : lengths[b];
  const int key_batch = PAGE == 0 ? b : 0;
  device const T* queries = query + b * sizes[kQuery] + first_head * sizes[kQuery + 1];
  device const T* keys = key + key_batch * sizes[kKey] + kv_head * sizes[kKey + 1];
  device const T* values = value + key_batch * sizes[kValue] + kv_head * sizes[kValue + 1];
  const FoldedRows query_rows = {sizes[kQuery + 2], sizes[kQuery + 1]};
  device const int* pages = table + b * sizes[kTableWidth];
  const Keys key_rows = {pages, sizes[kKey + 2], sizes[kKey]};
  const Keys value_rows = {pages, sizes[kValue + 2], sizes[kValue]};

  // Tiles do not cross blocks, whose size need not be a multiple of theirs.
  int block = 0, first = row_tile * kRows, end = q_length * FOLD;
  if (LISTS) {
    const int per_block = (min(q_length, BLOCK) * FOLD + kRows - 1) / kRows;
    block = row_tile / per_block;
    first = block * BLOCK * FOLD + row_tile % per_block * kRows;
    end = min(q_length, (block + 1) * BLOCK) * FOLD;
  }

  simdgroup_matrix<T, 8, 8> rows[kChunks * 4];
  for (int chunk = 0; chunk < kChunks; chunk++) {
    load_tile<kRows>(tile, queries, query_rows, first, end, chunk * kTile, SIZE, sizes[kQuery + 3],
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
  const int inner_row = simd * 8 + lane / 4, quarter = lane % 4 * 8;
  const int folded_row = first + inner_row, row = folded_row / FOLD;
  const int h = first_head + folded_row % FOLD;
  float weight = 0.0f, greatest = -INFINITY;

  long list = 0;
  int per_block = 1, partial = (key_count + kTile - 1) / kTile, steps = partial;
  if (LISTS) {
    const long mask_head = first_head % sizes[kMaskHeads];
    const long mask_row = (b % sizes[kMaskBatches]) * sizes[kMaskHeads] + mask_head;
    list = mask_row * sizes[kMaskBlocks] + block;
    per_block = tiles_of(kv_length, KEY_BLOCK);
    partial = partial_counts[list] * per_block;
    steps = partial + full_counts[list] * per_block;
  }
  const int begin = part_number * part_steps;
  steps = min(steps, begin + part_steps);
  for (int step = begin; step < steps; step++) {
    int key_block = 0, first_key = step * kTile, stop = key_count;
    long slot = -1;  // of the block's bits; those of a block that is visible whole are none
    if (LISTS) {
      const bool is_partial = step < partial;
      const int place = (is_partial ? step : step - partial) / per_block;
      key_block = is_partial ? partial_blocks[list * sizes[kPartialWidth] + place]
                             : full_blocks[list * sizes[kFullWidth] + place];
      first_key = key_block * KEY_BLOCK + step % per_block * kTile;
      stop = min(key_count, (key_block + 1) * KEY_BLOCK);
      slot = is_partial ? first_partial[list] + place : -1;
    }

    simdgroup_matrix<float, 8, 8> products[4];
    for (int part = 0; part < 4; part++)
      products[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int chunk = 0; chunk < kChunks; chunk++) {
      load_tile<kTile>(tile, keys, key_rows, first_key, stop, chunk * kTile, SIZE, sizes[kKey + 3],
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
      const bool seen = folded_row < end && k < stop && (step >= partial || VISIBLE);
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
      const bool odd = load_tile<kTile>(tile, values, value_rows, first_key, stop, chunk * kTile,
                                        VALUE_SIZE, sizes[kValue + 3], thread_index);
      const bool odd_in_simdgroup = simd_any(odd);
      if (lane == 0) odd_values[simd] = odd_in_simdgroup;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (any_simdgroup(odd_values)) {
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
  const long part_rows = part_number * sizes[kAllRows];
  if (folded_row < end && lane % 4 == 0) {
    const long place = part_rows + (long(b) * heads + h) * q_length + row;
    lse[place] = empty ? -INFINITY : greatest + precise::log(divisor);
    // The greatest of NaN and others is NaN.
    if (MAXIMA) max_scores[place] = weight == weight ? greatest : weight;
  }
  device OUT* results = out + part_rows * VALUE_SIZE + b * sizes[kOut];
  results += first_head * sizes[kOut + 1];
  const FoldedRows out_rows = {sizes[kOut + 2], sizes[kOut + 1]};
  for (int chunk = 0; chunk < kValueChunks; chunk++) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int part = 0; part < 4; part++)
      simdgroup_store(total[chunk * 4 + part], scores + simd * 8 * kTile + part * 8, kTile);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < 8; i++) {
      const float by = simd_shuffle(divisor, ushort(i * 4));
      const int at = first + simd * 8 + i, column = chunk * kTile + lane;
      if (at < end && column < VALUE_SIZE)
        results[place_of(out_rows, at) + column * sizes[kOut + 3]] =
            OUT(scores[(simd * 8 + i) * kTile + lane] / by);
    }
  }
}
