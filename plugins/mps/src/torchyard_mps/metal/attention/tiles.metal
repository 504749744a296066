// Tiles of 32 rows, keys and columns, which a threadgroup of 128 threads loads. Tiles do not cross
// blocks, whose size need not be a multiple of theirs. The launch defines T above it.

constant constexpr int kTile = 32;
constant constexpr int kThreads = 128;

inline int tiles_of(int length, int block) { return (min(length, block) + kTile - 1) / kTile; }

// Loads rows [first, first + 32) and columns [column, column + 32) of a head; 0 where it has none.
// Returns whether the thread loaded NaN or an infinity.
template <typename S>
inline bool load_tile(threadgroup S* tile, device const T* head, int first, int end, int column,
                      int columns, long row_stride, long column_stride, int thread_index) {
  bool odd = false;
  for (int i = thread_index; i < kTile * kTile; i += kThreads) {
    const int row = first + i / kTile, at = column + i % kTile;
    const bool inside = row < end && at < columns;
    const T loaded = inside ? head[row * row_stride + at * column_stride] : T(0.0f);
    tile[i] = S(loaded);
    odd = odd || !isfinite(float(loaded));
  }
  return odd;
}
