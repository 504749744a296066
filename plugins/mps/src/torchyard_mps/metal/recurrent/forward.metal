// One step of recurrent layers. The launch defines above it T, of input, states and weights; KIND, of
// LSTM, GRU, RNN_TANH and RNN_RELU; and BIAS, RAGGED, RESERVE and PROJECTED, whether there are biases,
// lengths, a reserve, and a projection.
//
// A simdgroup computes a hidden unit of several sequences: its lanes read a row of the weight side by
// side, and each row is read once for all of them.

constant constexpr int kRows = 8;
// Units of a threadgroup.
constant constexpr int kUnits = 4;
constant constexpr int kGates = KIND == LSTM ? 4 : KIND == GRU ? 3 : 1;

// What ``sizes`` holds: sequences, hidden units, outputs, the strides of w_hh's rows and columns, of
// w_hr's, and of the rows of the output and of the reserve.
constant constexpr int kBatch = 0, kHidden = 1, kOutputs = 2, kWeight = 3, kProjection = 5;
constant constexpr int kOutputRow = 7, kReserveRow = 8;

// Rows of ``state`` times COUNT rows of a weight, ``gate`` elements apart: sums[row * COUNT + number].
template <int COUNT, typename S>
inline void products(thread float* sums, device const S* state, long size, int rows,
                     device const T* weight, long gate, long column, uint lane, uint width) {
  for (int i = 0; i < kRows * COUNT; i++) sums[i] = 0.0f;
  for (long k = lane; k < size; k += width) {
    float factors[COUNT];
    for (int number = 0; number < COUNT; number++)
      factors[number] = float(weight[number * gate + k * column]);
    for (int row = 0; row < rows; row++) {
      const float value = float(state[row * size + k]);
      for (int number = 0; number < COUNT; number++)
        sums[row * COUNT + number] += value * factors[number];
    }
  }
  for (int i = 0; i < kRows * COUNT; i++) sums[i] = simd_sum(sums[i]);
}

// Writes a state that is new, rounded as the next step reads it; a sequence that has ended keeps its
// own, and puts out 0.
inline void put_state(float value, bool there, long row, long at, device const T* before,
                      device T* after, device T* output, device float* reserve,
                      constant long* sizes) {
  const long outputs = sizes[kOutputs], own = row * outputs + at;
  const T rounded = there ? T(value) : T(0.0f);
  after[own] = there ? rounded : before[own];
  output[row * sizes[kOutputRow] + at] = rounded;
  if (RESERVE)
    reserve[row * sizes[kReserveRow] + sizes[kReserveRow] - outputs + at] = float(rounded);
}

// Grid: hidden units by kUnits, sequences by kRows. Where there is a projection, ``wide`` is what it
// takes, and recurrent_projection writes the state.
kernel void recurrent_step(
    device const float* inputs [[buffer(0)]], device const T* before [[buffer(1)]],
    device T* after [[buffer(2)]], device float* cell [[buffer(3)]],
    device const T* weight [[buffer(4)]], device const T* input_bias [[buffer(5)]],
    device const T* bias [[buffer(6)]], device const int* lengths [[buffer(7)]],
    device T* output [[buffer(8)]], device float* reserve [[buffer(9)]],
    device float* wide [[buffer(10)]], device const long* step [[buffer(11)]],
    constant long* sizes [[buffer(12)]], uint2 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  const long hidden = sizes[kHidden], outputs = sizes[kOutputs], first = long(group.y) * kRows;
  const int rows = int(min(long(kRows), sizes[kBatch] - first));
  const long begin = long(group.x) * kUnits, end = min(begin + kUnits, hidden);
  for (long unit = begin + simd; unit < end; unit += simds) {
    float sums[kRows * kGates];
    products<kGates>(sums, before + first * outputs, outputs, rows, weight + unit * sizes[kWeight],
                     hidden * sizes[kWeight], sizes[kWeight + 1], lane, width);
    for (int i = int(lane); i < rows; i += int(width)) {
      const long row = first + i, own = row * hidden + unit;
      const bool there = !RAGGED || step[0] < long(lengths[row]);
      // Of each gate what the input adds, and what the state does.
      float x[kGates], h[kGates];
      for (int gate = 0; gate < kGates; gate++) {
        x[gate] = inputs[(row * kGates + gate) * hidden + unit];
        h[gate] = sums[i * kGates + gate];
        if (BIAS) x[gate] += float(input_bias[gate * hidden + unit]);
        if (BIAS) h[gate] += float(bias[gate * hidden + unit]);
      }
      device float* kept = reserve + row * sizes[kReserveRow] + unit;
      float state;
      if (KIND == LSTM) {
        const float in = torchyard::sigmoid(x[0] + h[0]);
        const float forget = torchyard::sigmoid(x[1 % kGates] + h[1 % kGates]);
        const float value = torchyard::tanh(x[2 % kGates] + h[2 % kGates]);
        const float out = torchyard::sigmoid(x[3 % kGates] + h[3 % kGates]);
        const float now = forget * cell[own] + in * value;
        state = out * torchyard::tanh(now);
        if (there) cell[own] = now;
        if (RESERVE) {
          const float columns[5] = {in, forget, value, out, now};
          for (int part = 0; part < 5; part++) kept[part * hidden] = there ? columns[part] : 0.0f;
        }
      } else if (KIND == GRU) {
        const float reset = torchyard::sigmoid(x[0] + h[0]);
        const float keep = torchyard::sigmoid(x[1 % kGates] + h[1 % kGates]);
        const float inner = h[2 % kGates];
        const float value = torchyard::tanh(x[2 % kGates] + reset * inner);
        state = value + keep * (float(before[own]) - value);
        if (RESERVE) {
          const float columns[4] = {reset, keep, value, inner};
          for (int part = 0; part < 4; part++) kept[part * hidden] = there ? columns[part] : 0.0f;
        }
      } else {
        const float sum = x[0] + h[0];
        state = KIND == RNN_TANH ? torchyard::tanh(sum) : sum < 0.0f ? 0.0f : sum;
      }
      if (PROJECTED)
        wide[own] = state;
      else
        put_state(state, there, row, unit, before, after, output, reserve, sizes);
    }
  }
}

// Grid: outputs by kUnits, sequences by kRows.
kernel void recurrent_projection(
    device const float* wide [[buffer(0)]], device const T* before [[buffer(1)]],
    device T* after [[buffer(2)]], device const T* weight [[buffer(3)]],
    device const int* lengths [[buffer(4)]], device T* output [[buffer(5)]],
    device float* reserve [[buffer(6)]], device const long* step [[buffer(7)]],
    constant long* sizes [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  const long hidden = sizes[kHidden], outputs = sizes[kOutputs], first = long(group.y) * kRows;
  const int rows = int(min(long(kRows), sizes[kBatch] - first));
  const long begin = long(group.x) * kUnits, end = min(begin + kUnits, outputs);
  for (long at = begin + simd; at < end; at += simds) {
    float sums[kRows];
    products<1>(sums, wide + first * hidden, hidden, rows, weight + at * sizes[kProjection], 0,
                sizes[kProjection + 1], lane, width);
    for (int i = int(lane); i < rows; i += int(width)) {
      const long row = first + i;
      const bool there = !RAGGED || step[0] < long(lengths[row]);
      put_state(sums[i], there, row, at, before, after, output, reserve, sizes);
    }
  }
}
