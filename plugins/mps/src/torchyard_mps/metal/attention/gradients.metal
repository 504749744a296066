// What the backward passes of attention share: FlashAttention-2 (arXiv 2307.08691), algorithm 2. The
// launch defines T, SIZE, VALUE_SIZE, BLOCK, KEY_BLOCK, LISTS, SCORE, SLOPE and VISIBLE above it, and
// Programs, which holds what programs read.
//
//   weight[q, k] = exp(score[q, k] - lse[q])
//   d score[q, k] = weight[q, k] (grad_out[q] . value[k] - delta[q])
//
// Tiles are float's whatever T is: gradients of scores, which a loss may scale, overflow half.

constant constexpr int kChunks = (SIZE + kTile - 1) / kTile;
constant constexpr int kValueChunks = (VALUE_SIZE + kTile - 1) / kTile;

// What ``sizes`` holds: strides of four tensors, each of batch, head, row and column; then these.
// Blocks and widths are those of the lists that the pass follows.
constant constexpr int kQuery = 0, kKey = 4, kValue = 8, kGradOut = 12;
constant constexpr int kHeads = 16, kGroup = 17, kQueries = 18, kKeys = 19, kMaskBatches = 20;
constant constexpr int kMaskHeads = 21, kMaskBlocks = 22, kPartialWidth = 23, kFullWidth = 24;
constant constexpr int kSite = 25, kSpread = 26, kFirstTile = 27, kFirstHead = 28;

// A tile's place in its block, and the first row or key that is not the tile's.
struct Span {
  int block, first, end;
};

inline Span span_of(int tile, int length, int size) {
  if (size == 0) return {0, tile * kTile, length};
  const int per_block = tiles_of(length, size), block = tile / per_block;
  return {block, block * size + tile % per_block * kTile, min(length, (block + 1) * size)};
}

struct Rows {
  device const T* head;
  long row_stride, column_stride;
  Span span;
};

inline Rows rows_of(device const T* tensor, constant long* strides, int b, int h, Span span) {
  return {tensor + b * strides[0] + h * strides[1], strides[2], strides[3], span};
}

inline long place_of(thread const Rows& rows, int row) { return row * rows.row_stride; }

inline bool load_rows(threadgroup float* tile, thread const Rows& rows, int column, int columns,
                      int thread_index) {
  return load_tile<kTile>(tile, rows.head, rows, rows.span.first, rows.span.end, column, columns,
                          rows.column_stride, thread_index);
}

// A mask's blocks, by rows of blocks or by columns; slots are those of partial blocks' bits.
struct Lists {
  device const int* partial_counts;
  device const int* partial_blocks;
  device const int* full_counts;
  device const int* full_blocks;
  device const long* slots;
};

// The tiles that a list has, those of partial blocks first.
struct Steps {
  long list;
  int partial, count;
};

inline Steps steps_of(thread const Lists& lists, constant long* sizes, int b, int h, int block,
                      int length, int size) {
  const int tiles = (length + kTile - 1) / kTile;
  if (!LISTS) return {0, tiles, tiles};
  const long row = (b % sizes[kMaskBatches]) * sizes[kMaskHeads] + h % sizes[kMaskHeads];
  const long list = row * sizes[kMaskBlocks] + block;
  const int per_block = tiles_of(length, size), partial = lists.partial_counts[list] * per_block;
  return {list, partial, partial + lists.full_counts[list] * per_block};
}

struct Step {
  Span span;
  bool whole;
  long slot;
};

inline Step step_of(thread const Lists& lists, constant long* sizes, thread const Steps& steps,
                    int step, int length, int size) {
  if (!LISTS) return {span_of(step, length, 0), false, 0};
  const bool whole = step >= steps.partial;
  const int per_block = tiles_of(length, size);
  const int place = (whole ? step - steps.partial : step) / per_block;
  const long at = steps.list * sizes[whole ? kFullWidth : kPartialWidth] + place;
  const int block = whole ? lists.full_blocks[at] : lists.partial_blocks[at];
  return {span_of(block * per_block + step % per_block, length, size), whole,
          whole ? -1 : lists.slots[at]};
}

struct Tile {
  int b, h;
  Span rows, keys;
  bool whole;  // whether all pairs are visible
  long slot;
};

// products[i, j] = one[i] . other[j]. Each simdgroup writes, and may read at once, 8 rows i.
template <int COLUMNS>
inline void multiply_rows(threadgroup float* products, thread const Rows& one,
                          thread const Rows& other, threadgroup float* left,
                          threadgroup float* right, int simd, int thread_index) {
  simdgroup_matrix<float, 8, 8> sums[4];
  for (int part = 0; part < 4; part++)
    sums[part] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int column = 0; column < COLUMNS; column += kTile) {
    load_rows(left, one, column, COLUMNS, thread_index);
    load_rows(right, other, column, COLUMNS, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int of = 0; of < 4; of++) {
      simdgroup_matrix<float, 8, 8> a;
      simdgroup_load(a, left + simd * 8 * kTile + of * 8, kTile);
      for (int part = 0; part < 4; part++) {
        simdgroup_matrix<float, 8, 8> b;
        simdgroup_load(b, right + part * 8 * kTile + of * 8, kTile, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(sums[part], a, b, sums[part]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int part = 0; part < 4; part++)
    simdgroup_store(sums[part], products + simd * 8 * kTile + part * 8, kTile);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Gives a pair's weight and the gradient of its score, and returns whether it is visible. A row that
// sees nothing has an lse of -inf, and no gradient.
inline bool score_gradient(thread const Programs& programs, device const uchar* bits,
                           thread const Tile& tile, int row, int k, float s, float dropped,
                           float lse, float delta, thread float& weight, thread float& gradient) {
  const int b = tile.b, h = tile.h, q = row;
  const int block = tile.rows.block, key_block = tile.keys.block;
  const long slot = tile.slot;
  const bool seen = row < tile.rows.end && k < tile.keys.end && (tile.whole || VISIBLE);
  const bool counts = seen && lse != -INFINITY;
  weight = counts ? precise::exp(SCORE - lse) : 0.0f;
  gradient = counts ? weight * (dropped - delta) : 0.0f;
  return seen;
}

// d score / d raw.
inline float slope_of(thread const Programs& programs, thread const Tile& tile, int row, int k,
                      float s) {
  const int b = tile.b, h = tile.h, q = row;
  return SLOPE;
}

// total[i] += sum_j pairs[i, j] rows[j], or pairs[j, i] where TURNED, over visible pairs: a matrix
// product would carry NaN to rows that do not see its key, so a tile with one is added element by
// element, each lane a column. What other simdgroups wrote to ``pairs`` and ``visible`` before is read
// after a barrier.
template <int COLUMNS, bool TURNED>
inline void accumulate(thread simdgroup_matrix<float, 8, 8>* total,
                       threadgroup const float* pairs, threadgroup const uint* visible,
                       thread const Rows& rows, threadgroup float* tile, threadgroup float* sums,
                       threadgroup bool* odd_parts, int simd, int lane, int thread_index) {
  for (int column = 0; column < COLUMNS; column += kTile) {
    thread simdgroup_matrix<float, 8, 8>* chunk = total + column / 8;
    const bool odd = load_rows(tile, rows, column, COLUMNS, thread_index);
    const bool odd_in_simdgroup = simd_any(odd);
    if (lane == 0) odd_parts[simd] = odd_in_simdgroup;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (any_simdgroup(odd_parts)) {
      for (int part = 0; part < 4; part++)
        simdgroup_store(chunk[part], sums + simd * 8 * kTile + part * 8, kTile);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (int i = simd * 8; i < simd * 8 + 8; i++) {
        float sum = sums[i * kTile + lane];
        for (int j = 0; j < kTile; j++) {
          const uint seen = TURNED ? visible[j] >> uint(i) : visible[i] >> uint(j);
          if ((seen & 1u) != 0u)
            sum += pairs[TURNED ? j * kTile + i : i * kTile + j] * tile[j * kTile + lane];
        }
        sums[i * kTile + lane] = sum;
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (int part = 0; part < 4; part++)
        simdgroup_load(chunk[part], sums + simd * 8 * kTile + part * 8, kTile);
    } else {
      for (int of = 0; of < 4; of++) {
        simdgroup_matrix<float, 8, 8> left;
        if (TURNED)
          simdgroup_load(left, pairs + of * 8 * kTile + simd * 8, kTile, ulong2(0, 0), true);
        else
          simdgroup_load(left, pairs + simd * 8 * kTile + of * 8, kTile);
        for (int part = 0; part < 4; part++) {
          simdgroup_matrix<float, 8, 8> right;
          simdgroup_load(right, tile + of * 8 * kTile + part * 8, kTile);
          simdgroup_multiply_accumulate(chunk[part], left, right, chunk[part]);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// Writes factor * total to rows of COLUMNS contiguous elements; ``sums`` is of 32 x 32.
template <int COLUMNS>
inline void write_rows(thread simdgroup_matrix<float, 8, 8>* total, device T* head, Span span,
                       float factor, threadgroup float* sums, int simd, int lane) {
  for (int column = 0; column < COLUMNS; column += kTile) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int part = 0; part < 4; part++)
      simdgroup_store(total[column / 8 + part], sums + simd * 8 * kTile + part * 8, kTile);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = simd * 8; i < simd * 8 + 8; i++) {
      const long row = span.first + i;
      if (row < span.end && column + lane < COLUMNS)
        head[row * COLUMNS + column + lane] = T(factor * sums[i * kTile + lane]);
    }
  }
}
