// Sums of the parts of each place, each in the order of the parts: one order, and no atomics. Sums are
// those of a float and what it lacks, by the exact error of an addition (Knuth, The Art of Computer
// Programming, volume 2, 4.2.2), since Metal has no double. Grid: simdgroups, each of which sums places.

constant constexpr long kFew = 16;

struct Wide {
  float high, low;
};

inline Wide plus(Wide x, Wide y) {
  const float sum = x.high + y.high, part = sum - x.high;
  const float lost = (x.high - (sum - part)) + (y.high - part);
  // Of infinities and NaN there is no error.
  return {sum, isfinite(sum) ? x.low + y.low + lost : 0.0f};
}

kernel void sum_by_place(
    device const float* parts [[buffer(0)]], device const long* places [[buffer(1)]],
    device float* high [[buffer(2)]], device float* low [[buffer(3)]],
    constant long* sizes [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]],
    uint lanes [[threads_per_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  const long count = sizes[0], places_count = sizes[1], all = long(groups.x) * simds;
  for (long place = long(group.x) * simds + simd; place < places_count; place += all) {
    long bounds[2];
    for (int side = 0; side < 2; side++) {
      long from = 0, to = count;
      while (from < to) {
        const long middle = (from + to) / 2;
        if (places[middle] < place + side)
          from = middle + 1;
        else
          to = middle;
      }
      bounds[side] = from;
    }
    Wide total = {0.0f, 0.0f};
    // A few parts are not worth the exchanges between lanes.
    const bool few = bounds[1] - bounds[0] <= kFew;
    for (long at = bounds[0] + (few ? 0 : lane); at < bounds[1]; at += few ? 1 : lanes)
      total = plus(total, {parts[at], 0.0f});
    for (uint distance = few ? 0 : lanes / 2; distance > 0; distance /= 2) {
      const Wide other = {simd_shuffle_down(total.high, ushort(distance)),
                          simd_shuffle_down(total.low, ushort(distance))};
      total = plus(total, other);
    }
    if (lane == 0) {
      total = plus({high[place], low[place]}, total);
      high[place] = total.high;
      low[place] = total.low;
    }
  }
}
