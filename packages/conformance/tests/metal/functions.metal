// What the shim has, each kernel a part of it.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct Pair {
  float rg;  // looks like a swizzle, and is a member
  int count;
};
constant float kTable[3] = {1.5, -2.0, 0.25};

kernel void swizzles(device float4* x [[buffer(0)]], device float* y [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  float4 v = x[i];
  v.xy = v.zw + v.xx;
  v.wz += float2(1.0, 2);
  Pair pair;
  pair.rg = v.bgr.z * kTable[i % 3];
  const float3 crossed = cross(v.xyz, float3(1, 0, 2));
  x[i].zyx = x[i].xyz;
  y[i] = pair.rg + dot(v, float4(1, float2(2, 3), 4)) + crossed.y + length(v.yx);
}

kernel void halves(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
                   device half* sums [[buffer(2)]], device bfloat* products [[buffer(3)]],
                   device float* mixed [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  sums[i] = a[i] + b[i] * 2;
  products[i] = bfloat(float(a[i])) * bfloat(float(b[i]));
  mixed[i] = a[i] * 0.1 + 1.0h;
}

kernel void mathematics(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                        constant int& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const float v = x[i];
  y[i] = exp(v);
  y[n + i] = precise::tanh(v);
  y[2 * n + i] = fast::log(abs(v) + 1.0);
  y[3 * n + i] = rsqrt(v * v + 0.5);
  y[4 * n + i] = clamp(v, -0.5, 0.5) + fma(v, 2.0, 1.0);
  y[5 * n + i] = select(floor(v), ceil(v), v > 0);
  y[6 * n + i] = as_type<float>(as_type<uint>(v) ^ 0x80000000u);
  y[7 * n + i] = float(popcount(i) + clz(i) + ctz(i + 1) + mulhi(int(i), 1 << 30));
}

kernel void lanes(device const int* x [[buffer(0)]], device int* y [[buffer(1)]],
                  uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]]) {
  const int v = x[i];
  y[i] = simd_prefix_inclusive_sum(v);
  y[n + i] = simd_prefix_exclusive_sum(v);
  y[2 * n + i] = simd_max(v) - simd_min(v);
  y[3 * n + i] = simd_shuffle_down(v, 3);
  y[4 * n + i] = simd_shuffle_up(v, 2);
  y[5 * n + i] = simd_broadcast(v, 7);
  y[6 * n + i] = int(ulong(simd_ballot(v % 2 != 0)) & 0xffff);
  y[7 * n + i] = quad_sum(v);
  y[8 * n + i] = simd_shuffle_rotate_down(v, 1);
  // Of the lanes that take part only.
  if (lane % 2 == 0) y[9 * n + i] = simd_sum(v);
  else y[9 * n + i] = -simd_sum(v);
  y[10 * n + i] = simd_shuffle_and_fill_down(v, v + 1000, 4);
}

// C = A B of n x n by tiles of 8, one for each simdgroup.
template <typename T>
inline void multiply(device const T* a, device const T* b, device float* c, uint n, uint2 g) {
  simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0);
  for (uint k = 0; k < n; k += 8) {
    simdgroup_matrix<T, 8, 8> left, right;
    simdgroup_load(left, a + g.y * 8 * n + k, n);
    simdgroup_load(right, b + g.x * 8 * n + k, n, ulong2(0, 0), true);
    simdgroup_multiply_accumulate(sum, left, right, sum);
  }
  simdgroup_store(sum, c + g.y * 8 * n + g.x * 8, n);
}
kernel void multiply_float(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                           device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                           uint2 g [[threadgroup_position_in_grid]]) {
  multiply<float>(a, b, c, n, g);
}
kernel void multiply_half(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
                          device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                          uint2 g [[threadgroup_position_in_grid]]) {
  multiply<half>(a, b, c, n, g);
}
kernel void multiply_bfloat(device const bfloat* a [[buffer(0)]],
                            device const bfloat* b [[buffer(1)]], device float* c [[buffer(2)]],
                            constant uint& n [[buffer(3)]],
                            uint2 g [[threadgroup_position_in_grid]]) {
  multiply<bfloat>(a, b, c, n, g);
}

// The largest value, by compare and exchange, through memory that the launch sets.
kernel void greatest(device const int* x [[buffer(0)]], device atomic_int* best [[buffer(1)]],
                     threadgroup int* values [[threadgroup(0)]],
                     uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                     uint i [[thread_index_in_threadgroup]]) {
  values[i] = x[(at.z * size.y + at.y) * size.x + at.x];
  int seen = atomic_load_explicit(best, memory_order_relaxed);
  while (seen < values[i] &&
         !atomic_compare_exchange_weak_explicit(best, &seen, values[i], memory_order_relaxed,
                                                memory_order_relaxed)) {
  }
}

// Values go from lane to lane through memory, ordered by the simdgroup's own barrier.
kernel void neighbours_of_lanes(device const int* x [[buffer(0)]], device int* y [[buffer(1)]],
                                uint i [[thread_index_in_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint width [[threads_per_simdgroup]]) {
  threadgroup int values[128];
  values[i] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = values[i - lane + (lane + 1) % width];
}
