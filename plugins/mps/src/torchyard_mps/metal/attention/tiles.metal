// Tiles of rows, keys and columns, which a threadgroup loads: 32 of each, and fewer rows where fewer
// simdgroups, each of which computes 8, are enough. Tiles do not cross blocks, whose size need not be a
// multiple of theirs. The launch defines T and THREADS above it.

constant constexpr int kTile = 32;
constant constexpr int kThreads = THREADS;
constant constexpr int kSimds = kThreads / 32;
constant constexpr int kRows = kSimds * 8;

inline int tiles_of(int length, int block) { return (min(length, block) + kTile - 1) / kTile; }

// Whether the flag of some simdgroup is set.
inline bool any_simdgroup(threadgroup const bool* flags) {
  bool any = false;
  for (int i = 0; i < kSimds; i++) any = any || flags[i];
  return any;
}

// Loads rows [first, first + ROWS) and columns [column, column + 32) of a head; 0 where it has none.
// ``place_of(rows, row)`` is where a row begins. Returns whether the thread loaded NaN or an infinity.
template <int ROWS, typename S, typename R>
inline bool load_tile(threadgroup S* tile, device const T* head, thread const R& rows, int first,
                      int end, int column, int columns, long column_stride, int thread_index) {
  bool odd = false;
  for (int i = thread_index; i < ROWS * kTile; i += kThreads) {
    const int row = first + i / kTile, at = column + i % kTile;
    const bool inside = row < end && at < columns;
    const T loaded = inside ? head[place_of(rows, row) + at * column_stride] : T(0.0f);
    tile[i] = S(loaded);
    odd = odd || !isfinite(float(loaded));
  }
  return odd;
}
