// The first k of each row in an order that is total: by ranks, unsigned numbers of which the greater
// comes first and equal elements have equal ones, then by the lowest index. The launch defines above
// it Element, an integer of an element's bits; Signed and Rank, of 32 bits or of 64; BITS; and
// INFINITY_BITS, those of the dtype's infinity, 0 where elements are integers.

constant constexpr uint kThreads = 256;
constant constexpr uint kMostSimdgroups = 64;

// What ``sizes`` of topk_select holds. Strides are those of x and of the mask.
constant constexpr int kK = 0, kLength = 1, kRow = 2, kColumn = 3, kMaskRow = 4, kMaskColumn = 5;
constant constexpr int kLargest = 6, kLast = 7, kMasked = 8, kSegmented = 9, kAbsent = 10;

constant constexpr Signed kMagnitude = Signed((Rank(1) << (BITS - 1)) - Rank(1));
constant constexpr Rank kSign = Rank(1) << (BITS - 1);
constant constexpr Rank kAll = kSign | Rank(kMagnitude);

inline Rank rank_of(Element bits, bool largest) {
  Rank rank = Rank(bits);
  if (Element(-1) < Element(0)) {
    Signed number = Signed(bits);
    if (INFINITY_BITS != 0) {
      const Signed magnitude = number & kMagnitude;
      // Of negative numbers the greater magnitude is the lesser number; zeros are equal, and NaN is
      // the greatest, whatever its sign.
      if (number < 0) number ^= kMagnitude;
      if (magnitude == 0) number = 0;
      if (magnitude > Signed(INFINITY_BITS)) number = kMagnitude;
    }
    rank = (Rank(number) ^ kSign) & kAll;
  }
  return largest ? rank : rank ^ kAll;
}

// A rank as a signed number of the same order.
inline Signed ordered(Rank rank) {
  return Signed(sizeof(Rank) * 8 == BITS ? rank ^ kSign : rank);
}

// The sum of the values of the threads before this one; total is that of all.
inline uint sum_before(uint value, threadgroup uint* sums, uint lane, uint simd, uint simds,
                       thread uint& total) {
  const uint inside = simd_prefix_exclusive_sum(value), all = simd_sum(value);
  if (lane == 0) sums[simd] = all;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint before = 0;
  total = 0;
  for (uint i = 0; i < simds; i++) {
    if (i < simd) before += sums[i];
    total += sums[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return before + inside;
}

// Writes the first k of a row, in the order of their indices, or the last of them alone. The rank of
// the last is found digit by digit from histograms of 8 bits, a radix selection; of the elements that
// have it, those of the lowest indices are taken. Grid: rows.
kernel void topk_select(
    device const Element* x [[buffer(0)]], device const bool* mask [[buffer(1)]],
    device const long* offsets [[buffer(2)]], device Element* values [[buffer(3)]],
    device long* indices [[buffer(4)]], device Signed* ranks [[buffer(5)]],
    constant long* sizes [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup atomic_uint counts[256];
  threadgroup uint sums[kMostSimdgroups];
  threadgroup uint chosen[2];  // the digit, and how many elements are before it

  const long row = group.x;
  const bool largest = sizes[kLargest] != 0, last = sizes[kLast] != 0, masked = sizes[kMasked] != 0;
  const uint k = uint(sizes[kK]), width = last ? 1 : k;
  const bool segmented = sizes[kSegmented] != 0;
  const uint first = segmented ? uint(offsets[row]) : 0;
  const uint stop = segmented ? uint(offsets[row + 1]) : uint(sizes[kLength]);
  x += row * sizes[kRow];
  if (masked) mask += row * sizes[kMaskRow];
  values += row * width;
  indices += row * width;
  ranks += row * width;

  Rank limit = 0;
  uint wanted = k, found = 0;
  for (int shift = BITS - 8; shift >= 0; shift -= 8) {
    for (uint bin = me; bin < 256; bin += kThreads)
      atomic_store_explicit(&counts[bin], 0u, memory_order_relaxed);
    if (me < 2) chosen[me] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint at = first + me; at < stop; at += kThreads) {
      const Rank rank = rank_of(x[at * sizes[kColumn]], largest);
      const bool digits_fit = shift == BITS - 8 || rank >> (shift + 8) == limit;
      if (digits_fit && (!masked || mask[at * sizes[kMaskColumn]]))
        atomic_fetch_add_explicit(&counts[uint(rank >> shift) & 255u], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Thread i has the digit 255 - i: the greatest come first.
    const uint bin = 255 - me;
    const uint count = atomic_load_explicit(&counts[bin], memory_order_relaxed);
    uint total;
    const uint before = sum_before(count, sums, lane, simd, simds, total);
    if (shift == BITS - 8) {
      found = total;
      wanted = min(k, total);
    }
    if (before < wanted && before + count >= wanted) {
      chosen[0] = bin;
      chosen[1] = before;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    limit = (limit << 8) | Rank(chosen[0]);
    wanted -= chosen[1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  uint taken = 0, written = 0;
  for (uint begin = first; begin < stop; begin += kThreads) {
    const uint at = begin + me;
    const bool inside = at < stop && (!masked || mask[at * sizes[kMaskColumn]]);
    const Element bits = inside ? x[at * sizes[kColumn]] : Element(0);
    const Rank rank = rank_of(bits, largest);
    const bool equal = inside && rank == limit;
    uint total;
    const uint number = taken + sum_before(uint(equal), sums, lane, simd, simds, total);
    taken += total;
    const bool keep = last ? equal && number + 1 == wanted && found >= k
                           : inside && (rank > limit || (equal && number < wanted));
    const uint to = written + sum_before(uint(keep), sums, lane, simd, simds, total);
    written += total;
    if (keep) {
      values[to] = bits;
      indices[to] = long(at);
      ranks[to] = ordered(rank);
    }
  }
  // The value that comes last in the order, of the least rank.
  for (uint to = written + me; to < width; to += kThreads) {
    values[to] = Element(sizes[kAbsent]);
    indices[to] = -1;
    ranks[to] = ordered(0);
  }
}

// Orders rows of ``sizes[0]`` by rank, greatest first; equal ranks keep their order. An element's place
// is how many come before it. Grid: rows.
kernel void topk_sort(device const Element* values [[buffer(0)]],
                      device const long* indices [[buffer(1)]],
                      device const Signed* ranks [[buffer(2)]],
                      device Element* sorted_values [[buffer(3)]],
                      device long* sorted_indices [[buffer(4)]],
                      constant long* sizes [[buffer(5)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint me [[thread_index_in_threadgroup]]) {
  const uint k = uint(sizes[0]);
  const long row = long(group.x) * k;
  for (uint i = me; i < k; i += kThreads) {
    const Signed rank = ranks[row + i];
    uint place = 0;
    for (uint j = 0; j < k; j++) {
      const Signed other = ranks[row + j];
      place += uint(other > rank || (other == rank && j < i));
    }
    sorted_values[row + place] = values[row + i];
    sorted_indices[row + place] = indices[row + i];
  }
}
