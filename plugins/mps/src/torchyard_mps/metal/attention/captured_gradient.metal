// What one read of a captured tensor gives to the tensor's gradient, and the element that it belongs
// to. The launch defines SITE_PLACE and SITE_WEIGHT, of the read that ``sizes`` names.
//
//   part[q, k] = d score[q, k] SITE_WEIGHT,  place[q, k] = SITE_PLACE
//
// Parts of one place are summed here, in an order that depends on sizes alone: those of a tile where
// the place depends on neither q nor k (a spread of 0), of a row where it does not depend on k (1), or
// of no others (2). Who launches this sums parts by place, without atomics. Grid: tiles of 32 rows,
// heads.

// ``parts`` and ``places`` are [heads, tiles], [heads, tiles * 32] or [heads, tiles * 32, keys] by the
// spread, and begin as 0 and -1, which is no place.
kernel void attention_captured_gradient(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]],
    device const T* value [[buffer(2)]], device const T* grad_out [[buffer(3)]],
    device const float* lse [[buffer(4)]], device const float* delta [[buffer(5)]],
    device const int* partial_counts [[buffer(6)]], device const int* partial_blocks [[buffer(7)]],
    device const int* full_counts [[buffer(8)]], device const int* full_blocks [[buffer(9)]],
    device const uchar* bits [[buffer(10)]], device const long* slots [[buffer(11)]],
    constant long* sizes [[buffer(12)]], constant float& scale [[buffer(13)]],
    device float* parts [[buffer(14)]], device long* places [[buffer(15)]],
    CAPTURED_16 uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint me [[thread_index_in_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]],
    uint simd_index [[simdgroup_index_in_threadgroup]]) {
  threadgroup float left[kTile * kTile], right[kTile * kTile];
  threadgroup float scores[kTile * kTile], found[kTile * kTile];
  threadgroup float row_totals[kTile];

  const Programs programs = {PROGRAMS};
  const Lists lists = {partial_counts, partial_blocks, full_counts, full_blocks, slots};
  const int lane = int(lane_index), simd = int(simd_index), thread_index = int(me);
  const int site = int(sizes[kSite]), spread = int(sizes[kSpread]), heads = int(sizes[kHeads]);
  const int batch_head = int(sizes[kFirstHead]) + int(group.y);
  const int h = batch_head % heads, b = batch_head / heads, kv_head = h / int(sizes[kGroup]);
  const int q_length = int(sizes[kQueries]), kv_length = int(sizes[kKeys]);
  const Span span = span_of(int(sizes[kFirstTile]) + int(group.x), q_length, BLOCK);
  const Rows queries = rows_of(query, sizes + kQuery, b, h, span);
  const Rows slopes = rows_of(grad_out, sizes + kGradOut, b, h, span);

  const int inner_row = simd * 8 + lane / 4, row = span.first + inner_row, quarter = lane % 4 * 8;
  const long at = long(batch_head) * q_length + row;
  const float row_lse = row < span.end ? lse[at] : 0.0f;
  const float row_delta = row < span.end ? delta[at] : 0.0f;
  const long local_tile = long(group.y) * groups.x + group.x;
  const long local_row = local_tile * kTile + inner_row;
  const int q = row;
  float total = 0.0f;

  const Steps steps = steps_of(lists, sizes, b, h, span.block, kv_length, KEY_BLOCK);
  for (int step = 0; step < steps.count; step++) {
    const Step listed = step_of(lists, sizes, steps, step, kv_length, KEY_BLOCK);
    const Tile tile = {b, h, span, listed.span, listed.whole, listed.slot};
    const Rows keys = rows_of(key, sizes + kKey, b, kv_head, listed.span);
    const Rows values = rows_of(value, sizes + kValue, b, kv_head, listed.span);
    multiply_rows<SIZE>(scores, queries, keys, left, right, simd, thread_index);
    multiply_rows<VALUE_SIZE>(found, slopes, values, left, right, simd, thread_index);
    for (int j = quarter; j < quarter + 8; j++) {
      const int place = inner_row * kTile + j, k = listed.span.first + j;
      const float s = scores[place] * scale;
      float weight, gradient;
      if (!score_gradient(programs, bits, tile, row, k, s, found[place], row_lse, row_delta, weight,
                          gradient))
        continue;
      const float part = gradient * SITE_WEIGHT;
      if (spread == 2) {
        parts[local_row * kv_length + k] = part;
        places[local_row * kv_length + k] = SITE_PLACE;
      } else {
        total += part;
      }
    }
  }
  if (spread == 2) return;
  total = quad_sum(total);
  // Neither depends on the key and the score here.
  const int k = 0;
  const float s = 0.0f;
  if (spread == 1) {
    if (lane % 4 != 0) return;
    parts[local_row] = total;
    if (row < span.end) places[local_row] = SITE_PLACE;
    return;
  }
  if (lane % 4 == 0) row_totals[inner_row] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index != 0) return;
  total = 0.0f;
  for (int i = 0; i < kTile; i++) total += row_totals[i];
  parts[local_tile] = total;
  places[local_tile] = SITE_PLACE;
}
