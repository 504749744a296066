// Where the elements of a launch's groups are. The launch defines above it SLOTS, the groups that it
// computes; DIMENSIONS, in which it walks them; and OPERANDS, the tensors of a group.

constant constexpr long kThreads = 256;
// Elements that a threadgroup computes.
constant constexpr long kChunk = 1024;

// What a row of ``table`` holds, one for each group: how many elements, how many threadgroups are
// before its first one, the sizes of its dimensions, the innermost first, each tensor's strides of
// them, and its numbers, floats by their bits. WIDTH numbers in all.
constant constexpr int kCount = 0, kFirst = 1, kSizes = 2, kStrides = kSizes + DIMENSIONS;
constant constexpr int kNumbers = kStrides + OPERANDS * DIMENSIONS;

struct Indices {
  long of[DIMENSIONS];
};

inline int slot_of(constant long* table, long group) {
  int slot = 0;
  while (slot + 1 < SLOTS && group >= table[(slot + 1) * WIDTH + kFirst]) slot++;
  return slot;
}

inline long first_of(constant long* row, long group) { return (group - row[kFirst]) * kChunk; }
inline long stop_of(constant long* row, long first) { return min(first + kChunk, row[kCount]); }

inline Indices indices_of(constant long* row, long at) {
  Indices indices;
  long rest = at;
  for (int dimension = 0; dimension + 1 < DIMENSIONS; dimension++) {
    const long size = row[kSizes + dimension];
    indices.of[dimension] = rest % size;
    rest /= size;
  }
  indices.of[DIMENSIONS - 1] = rest;
  return indices;
}

inline long place_of(constant long* row, int operand, Indices indices) {
  constant long* strides = row + kStrides + operand * DIMENSIONS;
  long place = 0;
  for (int dimension = 0; dimension < DIMENSIONS; dimension++)
    place += indices.of[dimension] * strides[dimension];
  return place;
}

inline float float_of(long bits) { return as_type<float>(int(bits)); }
