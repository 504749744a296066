// Indices of an operator, checked: those outside of [least, size) become 0 in ``safe``, are counted in
// fault[0], and the first of them has its place in fault[1].
#include <metal_stdlib>
using namespace metal;

kernel void check_indices(constant ulong& count [[buffer(0)]], constant long& least [[buffer(1)]],
                          constant long& size [[buffer(2)]], device const long* index [[buffer(3)]],
                          device long* safe [[buffer(4)]], device atomic_uint* fault [[buffer(5)]],
                          uint first [[thread_position_in_grid]],
                          uint threads [[threads_per_grid]]) {
  for (ulong at = first; at < count; at += threads) {
    const long given = index[at];
    const bool inside = given >= least && given < size;
    safe[at] = inside ? given : 0l;
    if (!inside) {
      atomic_fetch_add_explicit(&fault[0], 1u, memory_order_relaxed);
      atomic_fetch_min_explicit(&fault[1], uint(min(at, ulong(0xffffffffu))), memory_order_relaxed);
    }
  }
}
