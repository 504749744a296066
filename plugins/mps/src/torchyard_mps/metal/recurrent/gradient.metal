// The gradient of one step of recurrent layers, from that of the step that followed it. The launch
// defines above it T, of the weights; KIND, of LSTM, GRU, RNN_TANH and RNN_RELU; and RAGGED, OUTPUT and
// PROJECTED, whether there are lengths, a gradient of the output, and a projection.
//
//   gradient of h[t] = that of output[t] + later W_hh + what passed the later step without a product
//
// A threadgroup computes columns of several sequences. Threads side by side read a row of the weight,
// and each takes a part of the products; parts are added in order.

constant constexpr int kRows = 8;
constant constexpr int kColumns = 32;
constant constexpr int kParts = 4;
constant constexpr int kThreads = kColumns * kParts;
constant constexpr int kGates = KIND == LSTM ? 4 : KIND == GRU ? 3 : 1;

// What ``sizes`` holds: steps, sequences, hidden units, outputs, the strides of w_hh's rows and columns,
// of w_hr's, of the output's gradient, and of the reserve's rows.
constant constexpr int kSteps = 0, kBatch = 1, kHidden = 2, kOutputs = 3, kWeight = 4;
constant constexpr int kProjection = 6, kOutput = 8, kReserveRow = 10;

// What ``place`` holds: the step, below 0 in the last launch; the step whose state it read; and how many
// products there are with ``later``, none in the first launch.
constant constexpr int kStep = 0, kEarlier = 1, kProducts = 2;

// Writes parts of the products of rows of ``left`` with a column of a weight, for sum_of.
inline void put_products(threadgroup float* parts, device const float* left, long size, long count,
                         int rows, device const T* weight, long row_stride, bool inside, int me) {
  float sums[kRows];
  for (int i = 0; i < kRows; i++) sums[i] = 0.0f;
  for (long k = me / kColumns; inside && k < count; k += kParts) {
    const float factor = float(weight[k * row_stride]);
    for (int i = 0; i < rows; i++) sums[i] += left[i * size + k] * factor;
  }
  for (int i = 0; i < kRows; i++)
    parts[(me / kColumns * kRows + i) * kColumns + me % kColumns] = sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline float sum_of(threadgroup const float* parts, int at) {
  float sum = 0.0f;
  for (int part = 0; part < kParts; part++) sum += parts[part * kRows * kColumns + at];
  return sum;
}

// A step of one sequence: whether the sequence has it, and whether it read the state at the start.
struct Step {
  long row;
  bool there, begins;
};

inline Step step_of(long row, device const int* lengths, constant long* place,
                    constant long* sizes) {
  const long length = RAGGED ? long(lengths[row]) : sizes[kSteps];
  const bool begins = place[kEarlier] < 0 || place[kEarlier] >= length;
  return {row, place[kStep] < length, begins};
}

// What the gates of a step are computed from and their gradients written to, as of the kernels.
struct Gates {
  device const float* reserve;
  device const float* previous;
  device const float* cell;
  device float* grad_cell;
  device float* sums;
  device float* inputs;
  device float* unprojected;
};

// Writes the gradients of the sums that a unit's gates are functions of, from ``gradient``, that of its
// hidden state, ahead of a projection. ``before`` is the hidden state that the step read.
inline void put_gates(Gates to, Step step, long unit, float gradient, float before,
                      constant long* sizes) {
  const long hidden = sizes[kHidden], own = step.row * hidden + unit;
  const long kept = step.row * sizes[kReserveRow] + unit;
  device const float* gate = to.reserve + kept;
  float sums[kGates], inner = 0.0f;
  if (KIND == LSTM) {
    const float in = gate[0], forget = gate[hidden], value = gate[2 * hidden];
    const float out = gate[3 * hidden], squashed = torchyard::tanh(gate[4 * hidden]);
    const float cell = step.begins ? to.cell[own] : to.previous[kept + 4 * hidden];
    const float through = to.grad_cell[own] + gradient * out * (1.0f - squashed * squashed);
    sums[0] = through * value * in * (1.0f - in);
    sums[1 % kGates] = through * cell * forget * (1.0f - forget);
    sums[2 % kGates] = through * in * (1.0f - value * value);
    sums[3 % kGates] = gradient * squashed * out * (1.0f - out);
    if (step.there) to.grad_cell[own] = through * forget;
    // 0 where there is no step, as the reserve is.
    if (PROJECTED) to.unprojected[own] = out * squashed;
  } else if (KIND == GRU) {
    const float reset = gate[0], keep = gate[hidden], value = gate[2 * hidden];
    inner = gradient * (1.0f - keep) * (1.0f - value * value);
    sums[0] = inner * gate[3 * hidden] * reset * (1.0f - reset);
    sums[1 % kGates] = gradient * (before - value) * keep * (1.0f - keep);
    sums[2 % kGates] = inner * reset;
  } else {
    const float state = gate[0];
    const float slope = KIND == RNN_TANH ? 1.0f - state * state : state > 0.0f ? 1.0f : 0.0f;
    sums[0] = gradient * slope;
  }
  for (int number = 0; number < kGates; number++) {
    const long at = (step.row * kGates + number) * hidden + unit;
    to.sums[at] = step.there ? sums[number] : 0.0f;
    // What the inputs add to a GRU's third gate is outside of its product with the first.
    if (KIND == GRU) to.inputs[at] = step.there ? number == 2 ? inner : sums[number] : 0.0f;
  }
}

// ``passed`` is what reaches the state before without a product, at first the gradient of the state at
// the end; the last launch leaves that of the state at the start in it. ``before`` receives the states
// that the step read. Where there is a projection, ``total`` is what its output receives, and
// recurrent_projection_gradient writes the rest. Grid: outputs by kColumns, sequences by kRows.
kernel void recurrent_gradient(
    device const float* later [[buffer(0)]], device const T* weight [[buffer(1)]],
    device float* passed [[buffer(2)]], device const float* grad_output [[buffer(3)]],
    device const float* hidden [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const float* reserve [[buffer(6)]], device const float* previous [[buffer(7)]],
    device const float* cell [[buffer(8)]], device float* grad_cell [[buffer(9)]],
    device float* sums [[buffer(10)]], device float* inputs [[buffer(11)]],
    device float* before [[buffer(12)]], device float* total [[buffer(13)]],
    constant long* place [[buffer(14)]], constant long* sizes [[buffer(15)]],
    uint2 group [[threadgroup_position_in_grid]], uint me [[thread_index_in_threadgroup]]) {
  threadgroup float parts[kParts * kRows * kColumns];
  const long outputs = sizes[kOutputs], first = long(group.y) * kRows;
  const int rows = int(min(long(kRows), sizes[kBatch] - first));
  const long size = kGates * sizes[kHidden], begin = long(group.x) * kColumns;
  const long own_column = begin + me % kColumns;
  put_products(parts, later + first * size, size, place[kProducts], rows,
               weight + own_column * sizes[kWeight + 1], sizes[kWeight], own_column < outputs,
               int(me));
  const Gates to = {reserve, previous, cell, grad_cell, sums, inputs, total};
  for (int i = int(me); i < rows * kColumns; i += kThreads) {
    const long row = first + i / kColumns, column = begin + i % kColumns;
    if (column >= outputs) continue;
    const long own = row * outputs + column, kept = row * sizes[kReserveRow];
    float gradient = sum_of(parts, i) + passed[own];
    if (place[kStep] < 0) {
      passed[own] = gradient;
      continue;
    }
    const Step step = step_of(row, lengths, place, sizes);
    if (OUTPUT && step.there)
      gradient += grad_output[row * sizes[kOutput] + column * sizes[kOutput + 1]];
    float state = 0.0f;
    if (step.there)
      state = step.begins ? hidden[own] : previous[kept + sizes[kReserveRow] - outputs + column];
    before[own] = state;
    if (PROJECTED)
      total[own] = gradient;
    else
      put_gates(to, step, column, gradient, state, sizes);
    if (!step.there)
      passed[own] = gradient;
    else
      passed[own] = KIND == GRU ? gradient * reserve[kept + outputs + column] : 0.0f;
  }
}

// ``unprojected`` receives what the projection multiplied. Grid: hidden units by kColumns, sequences by
// kRows.
kernel void recurrent_projection_gradient(
    device const float* total [[buffer(0)]], device const T* weight [[buffer(1)]],
    device const int* lengths [[buffer(2)]], device const float* reserve [[buffer(3)]],
    device const float* previous [[buffer(4)]], device const float* cell [[buffer(5)]],
    device float* grad_cell [[buffer(6)]], device float* sums [[buffer(7)]],
    device float* unprojected [[buffer(8)]], constant long* place [[buffer(9)]],
    constant long* sizes [[buffer(10)]], uint2 group [[threadgroup_position_in_grid]],
    uint me [[thread_index_in_threadgroup]]) {
  threadgroup float parts[kParts * kRows * kColumns];
  const long units = sizes[kHidden], outputs = sizes[kOutputs], first = long(group.y) * kRows;
  const int rows = int(min(long(kRows), sizes[kBatch] - first));
  const long begin = long(group.x) * kColumns, own_unit = begin + me % kColumns;
  put_products(parts, total + first * outputs, outputs, outputs, rows,
               weight + own_unit * sizes[kProjection + 1], sizes[kProjection], own_unit < units,
               int(me));
  const Gates to = {reserve, previous, cell, grad_cell, sums, sums, unprojected};
  for (int i = int(me); i < rows * kColumns; i += kThreads) {
    const long unit = begin + i % kColumns;
    if (unit >= units) continue;
    const Step step = step_of(first + i / kColumns, lengths, place, sizes);
    put_gates(to, step, unit, sum_of(parts, i), 0.0f, sizes);
  }
}
