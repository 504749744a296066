// grad_query[q] = scale sum_k d raw[q, k] key[k]: each row is written once, after a sum whose order
// depends on sizes alone. Grid: tiles of 32 rows, batch * head.

kernel void attention_query_gradient(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]],
    device const T* value [[buffer(2)]], device const T* grad_out [[buffer(3)]],
    device const float* lse [[buffer(4)]], device const float* delta [[buffer(5)]],
    device const int* partial_counts [[buffer(6)]], device const int* partial_blocks [[buffer(7)]],
    device const int* full_counts [[buffer(8)]], device const int* full_blocks [[buffer(9)]],
    device const uchar* bits [[buffer(10)]], device const long* slots [[buffer(11)]],
    constant long* sizes [[buffer(12)]], constant float& scale [[buffer(13)]],
    device T* grad_query [[buffer(14)]], CAPTURED_15 uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]], uint lane_index [[thread_index_in_simdgroup]],
    uint simd_index [[simdgroup_index_in_threadgroup]]) {
  threadgroup float left[kTile * kTile], right[kTile * kTile];
  threadgroup float scores[kTile * kTile], found[kTile * kTile];
  threadgroup uint visible[kTile];  // of each row a bit for each key of the step
  threadgroup bool odd_parts[kSimds];

  const Programs programs = {PROGRAMS};
  const Lists lists = {partial_counts, partial_blocks, full_counts, full_blocks, slots};
  const int lane = int(lane_index), simd = int(simd_index), thread_index = int(me);
  const int heads = int(sizes[kHeads]), h = int(group.y) % heads, b = int(group.y) / heads;
  const int kv_head = h / int(sizes[kGroup]);
  const int q_length = int(sizes[kQueries]), kv_length = int(sizes[kKeys]);
  const Span span = span_of(int(group.x), q_length, BLOCK);
  const Rows queries = rows_of(query, sizes + kQuery, b, h, span);
  const Rows slopes = rows_of(grad_out, sizes + kGradOut, b, h, span);

  // Four lanes, a quadgroup, have a row; each computes 8 of its 32 keys.
  const int inner_row = simd * 8 + lane / 4, row = span.first + inner_row, quarter = lane % 4 * 8;
  const long at = long(group.y) * q_length + row;
  const float row_lse = row < span.end ? lse[at] : 0.0f;
  const float row_delta = row < span.end ? delta[at] : 0.0f;
  simdgroup_matrix<float, 8, 8> total[kChunks * 4];
  for (int part = 0; part < kChunks * 4; part++)
    total[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  const Steps steps = steps_of(lists, sizes, b, h, span.block, kv_length, KEY_BLOCK);
  for (int step = 0; step < steps.count; step++) {
    const Step listed = step_of(lists, sizes, steps, step, kv_length, KEY_BLOCK);
    const Tile tile = {b, h, span, listed.span, listed.whole, listed.slot};
    const Rows keys = rows_of(key, sizes + kKey, b, kv_head, listed.span);
    const Rows values = rows_of(value, sizes + kValue, b, kv_head, listed.span);
    multiply_rows<SIZE>(scores, queries, keys, left, right, simd, thread_index);
    multiply_rows<VALUE_SIZE>(found, slopes, values, left, right, simd, thread_index);
    uint bits_of_row = 0u;
    for (int j = quarter; j < quarter + 8; j++) {
      const int place = inner_row * kTile + j, k = listed.span.first + j;
      const float s = scores[place] * scale;
      float weight, gradient;
      const bool seen = score_gradient(programs, bits, tile, row, k, s, found[place], row_lse,
                                       row_delta, weight, gradient);
      found[place] = seen ? gradient * slope_of(programs, tile, row, k, s) : 0.0f;
      bits_of_row |= seen ? 1u << uint(j) : 0u;
    }
    bits_of_row = quad_or(bits_of_row);
    if (lane % 4 == 0) visible[inner_row] = bits_of_row;
    accumulate<SIZE, false>(total, found, visible, keys, right, left, odd_parts, simd, lane,
                            thread_index);
  }
  write_rows<SIZE>(total, grad_query + long(group.y) * q_length * SIZE, span, scale, left, simd,
                   lane);
}
