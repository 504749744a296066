// grad_key[k] = scale sum_q d raw[q, k] query[q],  grad_value[k] = sum_q weight[q, k] grad_out[q]
//
// over the query heads of the key's group in order, so that each sum has one order. Lists are those by
// columns of blocks. Grid: tiles of 32 keys, batch * key head.

kernel void attention_key_gradient(
    device const T* query [[buffer(0)]], device const T* key [[buffer(1)]],
    device const T* value [[buffer(2)]], device const T* grad_out [[buffer(3)]],
    device const float* lse [[buffer(4)]], device const float* delta [[buffer(5)]],
    device const int* partial_counts [[buffer(6)]], device const int* partial_blocks [[buffer(7)]],
    device const int* full_counts [[buffer(8)]], device const int* full_blocks [[buffer(9)]],
    device const uchar* bits [[buffer(10)]], device const long* slots [[buffer(11)]],
    constant long* sizes [[buffer(12)]], constant float& scale [[buffer(13)]],
    device T* grad_key [[buffer(14)]], device T* grad_value [[buffer(15)]],
    CAPTURED_16 uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]], uint lane_index [[thread_index_in_simdgroup]],
    uint simd_index [[simdgroup_index_in_threadgroup]]) {
  threadgroup float left[kTile * kTile], right[kTile * kTile];
  threadgroup float weights[kTile * kTile], found[kTile * kTile];
  threadgroup uint visible[kTile];  // of each row a bit for each of the keys
  threadgroup bool odd_parts[kSimds];

  const Programs programs = {PROGRAMS};
  const Lists lists = {partial_counts, partial_blocks, full_counts, full_blocks, slots};
  const int lane = int(lane_index), simd = int(simd_index), thread_index = int(me);
  const int heads = int(sizes[kHeads]), members = int(sizes[kGroup]), kv_heads = heads / members;
  const int kv_head = int(group.y) % kv_heads, b = int(group.y) / kv_heads;
  const int q_length = int(sizes[kQueries]), kv_length = int(sizes[kKeys]);
  const Span span = span_of(int(group.x), kv_length, KEY_BLOCK);
  const Rows keys = rows_of(key, sizes + kKey, b, kv_head, span);
  const Rows values = rows_of(value, sizes + kValue, b, kv_head, span);

  simdgroup_matrix<float, 8, 8> key_total[kChunks * 4], value_total[kValueChunks * 4];
  for (int part = 0; part < kChunks * 4; part++)
    key_total[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int part = 0; part < kValueChunks * 4; part++)
    value_total[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  const int inner_row = simd * 8 + lane / 4, quarter = lane % 4 * 8;
  for (int member = 0; member < members; member++) {
    const int h = kv_head * members + member;
    const long first = (long(b) * heads + h) * q_length;
    const Steps steps = steps_of(lists, sizes, b, h, span.block, q_length, BLOCK);
    for (int step = 0; step < steps.count; step++) {
      const Step listed = step_of(lists, sizes, steps, step, q_length, BLOCK);
      const Tile tile = {b, h, listed.span, span, listed.whole, listed.slot};
      const Rows queries = rows_of(query, sizes + kQuery, b, h, listed.span);
      const Rows slopes = rows_of(grad_out, sizes + kGradOut, b, h, listed.span);
      multiply_rows<SIZE>(weights, queries, keys, left, right, simd, thread_index);
      multiply_rows<VALUE_SIZE>(found, slopes, values, left, right, simd, thread_index);
      const int row = listed.span.first + inner_row;
      const float row_lse = row < listed.span.end ? lse[first + row] : 0.0f;
      const float row_delta = row < listed.span.end ? delta[first + row] : 0.0f;
      uint bits_of_row = 0u;
      for (int j = quarter; j < quarter + 8; j++) {
        const int place = inner_row * kTile + j, k = span.first + j;
        const float s = weights[place] * scale;
        float weight, gradient;
        const bool seen = score_gradient(programs, bits, tile, row, k, s, found[place], row_lse,
                                         row_delta, weight, gradient);
        weights[place] = weight;
        found[place] = seen ? gradient * slope_of(programs, tile, row, k, s) : 0.0f;
        bits_of_row |= seen ? 1u << uint(j) : 0u;
      }
      bits_of_row = quad_or(bits_of_row);
      if (lane % 4 == 0) visible[inner_row] = bits_of_row;
      accumulate<VALUE_SIZE, true>(value_total, weights, visible, slopes, right, left, odd_parts,
                                   simd, lane, thread_index);
      accumulate<SIZE, true>(key_total, found, visible, queries, right, left, odd_parts, simd, lane,
                             thread_index);
    }
  }
  const long start = long(group.y) * kv_length;
  write_rows<SIZE>(key_total, grad_key + start * SIZE, span, scale, left, simd, lane);
  write_rows<VALUE_SIZE>(value_total, grad_value + start * VALUE_SIZE, span, 1.0f, left, simd,
                         lane);
}
