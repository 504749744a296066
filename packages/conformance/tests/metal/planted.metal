// Kernels in pairs: one is right, the other has one planted fault. A line with a fault ends in
// "FAULT", of which the tests know the number by it.
#include <metal_stdlib>
using namespace metal;

// Each threadgroup reverses 64 values.
kernel void reverse(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    uint g [[threadgroup_position_in_grid]],
                    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = x[g * 64 + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[g * 64 + i] = values[63 - i];
}
kernel void reverse_missing_barrier(device const float* x [[buffer(0)]],
                                    device float* y [[buffer(1)]],
                                    uint g [[threadgroup_position_in_grid]],
                                    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = x[g * 64 + i];
  y[g * 64 + i] = values[63 - i];  // FAULT missing_barrier
}
kernel void reverse_wrong_flag(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                               uint g [[threadgroup_position_in_grid]],
                               uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = x[g * 64 + i];
  threadgroup_barrier(mem_flags::mem_device);
  y[g * 64 + i] = values[63 - i];  // FAULT wrong_flag
}
kernel void reverse_divergent(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                              uint g [[threadgroup_position_in_grid]],
                              uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = x[g * 64 + i];
  if (i >= 1)
    threadgroup_barrier(mem_flags::mem_threadgroup);  // FAULT divergent
  y[g * 64 + i] = i == 0 ? x[g * 64 + 63] : values[i == 63 ? 63 : i] * 0.0 + x[g * 64 + 63 - i];
}

// Neighbours' sums of n values, of which the last has no neighbour.
kernel void neighbours(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                       constant int& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (int(i) < n) y[i] = x[i] + (int(i) + 1 < n ? x[i + 1] : 0.0);
}
kernel void neighbours_by_one(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                              constant int& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (int(i) < n)
    y[i] = x[i] + (int(i) < n ? x[i + 1] : 0.0);  // FAULT by_one
}
kernel void neighbours_before(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                              constant int& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (int(i) <= n)
    y[int(i) - 1] = x[i == uint(n) ? 0 : i];  // FAULT before
}

// The largest of a threadgroup's 64 values, by halves.
kernel void largest(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    uint g [[threadgroup_position_in_grid]],
                    uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  values[i] = x[g * 64 + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint half_ = 32; half_ > 0; half_ /= 2) {
    if (i < half_) values[i] = max(values[i], values[i + half_]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (i == 0) y[g] = values[0];
}
kernel void largest_race(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                         uint g [[threadgroup_position_in_grid]],
                         uint i [[thread_index_in_threadgroup]]) {
  threadgroup float best[1];
  const float value = x[g * 64 + i];
  best[0] = value;  // FAULT race_threadgroup
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) y[g] = best[0];
}
kernel void largest_unwritten(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                              uint g [[threadgroup_position_in_grid]],
                              uint i [[thread_index_in_threadgroup]]) {
  threadgroup float values[64];
  if (i < 63) values[i] = x[g * 64 + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float best = x[g * 64];
  for (int k = 0; k < 64; k++) best = max(best, values[k]);  // FAULT unwritten
  if (i == 0) y[g] = best;
}
kernel void largest_own_array(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                              uint g [[threadgroup_position_in_grid]],
                              uint i [[thread_index_in_threadgroup]]) {
  float best[4] = {x[g * 64], 0.0, 0.0, 0.0};
  thread float* at = best;
  for (int k = 0; k <= 4; k++) at[k] = max(at[k], x[g * 64 + i]);  // FAULT own_array
  if (i == 63) y[g] = at[0] + at[1] + at[2] + at[3];
}

// Values are counted by their remainder; every threadgroup adds to the same counts.
kernel void count(device const int* x [[buffer(0)]], device atomic_int* counts [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&counts[x[i] % 4], 1, memory_order_relaxed);
}
kernel void count_no_atomic(device const int* x [[buffer(0)]], device int* counts [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  counts[x[i] % 4] += 1;  // FAULT no_atomic
}
kernel void count_half_atomic(device const int* x [[buffer(0)]],
                              device atomic_int* counts [[buffer(1)]],
                              uint i [[thread_position_in_grid]]) {
  if (i == 3)
    ((device int*)counts)[x[i] % 4] = 0;  // FAULT half_atomic
  else
    atomic_fetch_add_explicit(&counts[x[i] % 4], 1, memory_order_relaxed);
}
kernel void last_index(device const int* x [[buffer(0)]], device int* counts [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  counts[x[i] % 4] = int(i);  // FAULT race_device
}

// The sum of a threadgroup's values.
kernel void sums(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                 uint g [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]],
                 uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[32];
  const float part = simd_sum(x[g * 64 + i]);
  if (lane == 0) parts[simd] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float all = 0.0;
  for (uint k = 0; k < simds; k++) all += parts[k];
  if (i == 0) y[g] = all;
}
kernel void sums_of_32(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                       uint g [[threadgroup_position_in_grid]],
                       uint i [[thread_index_in_threadgroup]]) {
  threadgroup float parts[2];
  const float part = simd_sum(x[g * 64 + i]);
  if (i % 32 == 0) parts[i / 32] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) y[g] = parts[0] + parts[1];  // FAULT width
}
kernel void sums_by_shuffles(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                             uint g [[threadgroup_position_in_grid]],
                             uint i [[thread_index_in_threadgroup]]) {
  threadgroup float parts[2];
  float part = x[g * 64 + i];
  for (ushort by = 16; by > 0; by /= 2)
    part += simd_shuffle_xor(part, by);  // FAULT shuffles
  if (i % 32 == 0) parts[i / 32] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) y[g] = parts[0] + parts[1];
}
kernel void sums_inactive(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                          uint g [[threadgroup_position_in_grid]],
                          uint i [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  float part = x[g * 64 + i];
  if (lane != 5)
    part += simd_shuffle_xor(part, 1);  // FAULT inactive
  if (i == 0) y[g] = part;
}

// Sums of squares in half.
kernel void squares(device const half* x [[buffer(0)]], device half* y [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  const float value = float(x[i]) * float(x[i]);
  y[i] = half(min(value, 65504.0));
}
kernel void squares_overflow(device const half* x [[buffer(0)]], device half* y [[buffer(1)]],
                             uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * x[i];  // FAULT overflow
}

// Rows of a matrix that lie apart are doubled.
struct Matrix {
  int rows, columns, stride;
};
kernel void doubled(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant Matrix& m [[buffer(2)]], uint2 at [[thread_position_in_grid]]) {
  y[at.y * m.columns + at.x] = x[at.y * m.stride + at.x] * 2.0;
}
kernel void doubled_stride(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                           constant Matrix& m [[buffer(2)]], uint2 at [[thread_position_in_grid]]) {
  y[at.y * m.columns + at.x] = x[at.y * m.columns + at.x] * 2.0;  // FAULT stride
}
kernel void doubled_by_fours(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                             constant Matrix& m [[buffer(2)]],
                             uint2 at [[thread_position_in_grid]]) {
  if (at.x == 0) {
    device const packed_float4* row = (device const packed_float4*)(x + at.y * m.stride);
    const float4 first = row[0];
    for (int k = 0; k < 4; k++) y[at.y * m.columns + k] = first[k] * 2.0;
  } else if (at.x >= 4) {
    y[at.y * m.columns + at.x] = x[at.y * m.stride + at.x] * 2.0;
  }
}
kernel void doubled_misaligned(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                               constant Matrix& m [[buffer(2)]],
                               uint2 at [[thread_position_in_grid]]) {
  if (at.x == 0) {
    const float4 first = *(device const float4*)(x + at.y * m.stride);  // FAULT misaligned
    for (int k = 0; k < 4; k++) y[at.y * m.columns + k] = first[k] * 2.0;
  } else if (at.x >= 4) {
    y[at.y * m.columns + at.x] = x[at.y * m.stride + at.x] * 2.0;
  }
}

// Where y is x each thread writes what it has read itself; shifted, what another reads.
kernel void negated(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  y[i] = -x[i];
}
kernel void negated_shifted(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  y[i] = -x[i + 1];  // FAULT aliasing
}

// Each thread waits for a value that no thread writes.
kernel void waits(device atomic_int* flag [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {
  }
}
kernel void overflows(device int* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  x[i] = x[i] + 2147483647;  // FAULT undefined
}
