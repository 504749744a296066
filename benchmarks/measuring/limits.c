// The machine's own limits: what a loop of nothing but one operation reaches.
//
// usage: limits THREADS SECONDS [read | flops], prints a line "NAME OPERATIONS_PER_SECOND" for each
// limit, or for that of reading memory alone, or for all others; one whose instructions the
// processor lacks is left out. Memory is read in two orders, of which the faster counts;
// "read_by_parts" is 1 where that is the second.
// benchmarks/limits.py compiles it for the processor at hand, as a program and as a library.
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Twelve independent chains: two ports times a latency of four to six cycles.
enum { kChains = 12, kInner = 1 << 16 };

// Far beyond any cache; read in slices, so that the best slice can be told from a disturbed one.
enum { kReadBytes = 256 << 20, kSliceBytes = 16 << 20 };

// Runs one slice of work and returns how many operations it did.
typedef double (*Slice)(void* state);

#if defined(__AVX512F__)
typedef __m512 Vector;
#define ZERO _mm512_setzero_ps
#define SET _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256 Vector;
#define ZERO _mm256_setzero_ps
#define SET _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#endif

#if defined(FMA)
static double fma_float32(void* state) {
  (void)state;
  Vector sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = ZERO();
  Vector a = SET(1.0f), b = SET(1e-9f);
  for (int i = 0; i < kInner; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = FMA(a, b, sums[c]);
      __asm__ volatile("" : "+v"(sums[c]));  // the compiler must not fold the loop
    }
  }
  return 2.0 * kInner * kChains * (sizeof(Vector) / sizeof(float));
}
#endif

#if defined(__AVX512BF16__)
static double dot_bfloat16(void* state) {
  (void)state;
  __m512 sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_setzero_ps();
  __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
  for (int i = 0; i < kInner; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_dpbf16_ps(sums[c], a, a);
      __asm__ volatile("" : "+v"(sums[c]));
    }
  }
  return 4.0 * kInner * kChains * 16;
}
#endif

#if defined(__AMX_BF16__) && defined(__linux__)
// Products of matrix tiles, into four of them. Tiles are zero: their speed is that of any numbers.
static double tiles_bfloat16(void* state) {
  (void)state;
  struct {
    uint8_t palette, row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1};
  for (int t = 0; t < 8; ++t) {
    shape.bytes[t] = 64;
    shape.rows[t] = 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int i = 0; i < kInner; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return 4.0 * kInner * 16 * 16 * 32 * 2;
}

// Whether the system lets this process use tiles.
static int may_use_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#endif

typedef struct {
  const uint64_t* data;
  size_t next;
} Reading;

// Reads whole lines of 64 bytes, and asks for the next page's: what the processor fetches ahead by
// itself ends with a page.
static void read_lines(const uint64_t* from, size_t lines) {
  enum { kPage = 4096 / 8 };
  uint64_t parts[8] = {0};
  for (size_t i = 0; i < lines * 8; i += 8) {
    __builtin_prefetch(from + i + kPage);
    for (int p = 0; p < 8; ++p) parts[p] += from[i + p];
  }
  for (int p = 0; p < 8; ++p) __asm__ volatile("" : : "r"(parts[p]));
}

// Likewise, a line of each part of a block in turn: some processors fetch ahead for several pages
// at once what they do not fetch for one.
static void read_parts(const uint64_t* from, size_t lines) {
  enum { kParts = 8, kPartLines = 128, kWords = 8 };
  uint64_t parts[kWords] = {0};
  for (; lines >= kParts * kPartLines; lines -= kParts * kPartLines) {
    for (size_t i = 0; i < kPartLines; ++i) {
      for (size_t part = 0; part < kParts; ++part) {
        const uint64_t* line = from + (part * kPartLines + i) * kWords;
        for (int p = 0; p < kWords; ++p) parts[p] += line[p];
      }
    }
    from += kParts * kPartLines * kWords;
  }
  for (int p = 0; p < kWords; ++p) __asm__ volatile("" : : "r"(parts[p]));
  read_lines(from, lines);
}

static double read_slice(Reading* reading, void (*read)(const uint64_t*, size_t)) {
  read(reading->data + reading->next / 8, kSliceBytes / 64);
  reading->next = (reading->next + kSliceBytes) % kReadBytes;
  return kSliceBytes;
}

static double read_memory_by_lines(void* state) { return read_slice(state, read_lines); }
static double read_memory_by_parts(void* state) { return read_slice(state, read_parts); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Slices between two meetings of the threads: all run at once, or the sum of their best would be
// what they reach one after the other.
enum { kSlices = 12, kMaxThreads = 256, kMaxRounds = 4096 };

typedef struct {
  pthread_barrier_t meeting;
  Slice slice;
  double deadline;
  int stop;
} Crew;

typedef struct {
  Crew* crew;
  void* state;
  double start, end, work;
  // Of the first thread: every thread's, and the rate of each round.
  void* all;
  int threads, rounds;
  double rates[kMaxRounds];
} Job;

static void* run(void* argument) {
  Job* job = argument;
  Crew* crew = job->crew;
  for (;;) {
    pthread_barrier_wait(&crew->meeting);
    if (crew->stop) return NULL;
    job->work = 0;
    job->start = now();
    for (int i = 0; i < kSlices; ++i) job->work += crew->slice(job->state);
    job->end = now();
    pthread_barrier_wait(&crew->meeting);
    if (job->all == NULL) continue;
    Job* all = job->all;
    double start = all[0].start, end = all[0].end, work = 0;
    for (int t = 0; t < job->threads; ++t) {
      if (all[t].start < start) start = all[t].start;
      if (all[t].end > end) end = all[t].end;
      work += all[t].work;
    }
    job->rates[job->rounds++] = work / (end - start);
    crew->stop = now() > crew->deadline || job->rounds == kMaxRounds;
  }
}

typedef struct {
  const uint64_t* const* starts;
  const size_t* lines;
  int count, number, threads, by_parts;
  atomic_int* arrived;
  double start, end;
} Share;

static void* read_share(void* argument) {
  Share* share = argument;
  // Not before all run, as the contestants' threads do: what starting them takes is no reading.
  atomic_fetch_add(share->arrived, 1);
  while (atomic_load(share->arrived) < share->threads) _mm_pause();
  share->start = now();
  for (int i = 0; i < share->count; ++i) {
    const size_t first = share->lines[i] * (size_t)share->number / (size_t)share->threads;
    const size_t last = share->lines[i] * (size_t)(share->number + 1) / (size_t)share->threads;
    (share->by_parts ? read_parts : read_lines)(share->starts[i] + 8 * first, last - first);
  }
  share->end = now();
  return NULL;
}

// Reads arrays of whole lines, one after the other, each thread its part of every one, by lines or
// by parts; returns the seconds, or a negative number where there are too many threads.
double seconds_to_read(const uint64_t* const* starts, const size_t* lines, int count, int threads,
                       int by_parts) {
  pthread_t ids[kMaxThreads];
  Share shares[kMaxThreads];
  atomic_int arrived = 0;
  if (threads < 1 || threads > kMaxThreads) return -1;
  for (int t = 0; t < threads; ++t) {
    shares[t] = (Share){starts, lines, count, t, threads, by_parts, &arrived, 0, 0};
    if (t > 0 && pthread_create(&ids[t], NULL, read_share, &shares[t]) != 0) exit(1);
  }
  read_share(&shares[0]);
  double start = shares[0].start, end = shares[0].end;
  for (int t = 1; t < threads; ++t) {
    pthread_join(ids[t], NULL);
    if (shares[t].start < start) start = shares[t].start;
    if (shares[t].end > end) end = shares[t].end;
  }
  return end - start;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Of arithmetic the best round counts: that limit is not lowered by whoever else uses the machine.
// Memory gives what it gives at the time, more and less alternately: of it, as of the contestants'
// times, the median counts.
static double measured(Slice slice, void** states, int threads, double seconds, int best) {
  pthread_t ids[kMaxThreads];
  static Job jobs[kMaxThreads];
  Crew crew = {.slice = slice, .deadline = now() + seconds, .stop = 0};
  if (pthread_barrier_init(&crew.meeting, NULL, (unsigned)threads) != 0) exit(1);
  for (int t = 0; t < threads; ++t) {
    jobs[t] = (Job){.crew = &crew, .state = states == NULL ? NULL : states[t], .threads = threads};
    if (t == 0) jobs[t].all = jobs;
  }
  for (int t = 0; t < threads; ++t) {
    if (pthread_create(&ids[t], NULL, run, &jobs[t]) != 0) exit(1);
  }
  for (int t = 0; t < threads; ++t) pthread_join(ids[t], NULL);
  pthread_barrier_destroy(&crew.meeting);
  const int rounds = jobs[0].rounds;
  qsort(jobs[0].rates, (size_t)rounds, sizeof(double), by_size);
  return jobs[0].rates[best ? rounds - 1 : rounds / 2];
}

static void report(const char* name, double value) { printf("%s %.6g\n", name, value); }

int main(int count, char** arguments) {
  if (count != 3 && count != 4) return 2;
  const char* only = count == 4 ? arguments[3] : "";
  int read_only = strcmp(only, "read") == 0, flops_only = strcmp(only, "flops") == 0;
  if (count == 4 && !read_only && !flops_only) return 2;
  int threads = atoi(arguments[1]);
  double seconds = atof(arguments[2]);
  if (threads < 1 || threads > kMaxThreads || !(seconds > 0)) return 2;
#if defined(FMA)
  if (!read_only) report("float32_flops", measured(fma_float32, NULL, threads, seconds, 1));
#endif
#if defined(__AVX512BF16__)
  Slice bfloat16 = dot_bfloat16;
#if defined(__AMX_BF16__) && defined(__linux__)
  if (may_use_tiles()) bfloat16 = tiles_bfloat16;
#endif
  if (!read_only) report("bfloat16_flops", measured(bfloat16, NULL, threads, seconds, 1));
#endif
  if (flops_only) return 0;
  Reading readings[kMaxThreads];
  void* states[kMaxThreads];
  for (int t = 0; t < threads; ++t) {
    char* data = aligned_alloc(1 << 21, kReadBytes);
    if (data == NULL) return 1;
#if defined(__linux__)
    // As in packed weights: a large page costs fewer misses of the translation.
    (void)madvise(data, kReadBytes, MADV_HUGEPAGE);
#endif
    memset(data, 1, kReadBytes);
    readings[t] = (Reading){(const uint64_t*)data, 0};
    states[t] = &readings[t];
  }
  const double by_lines = measured(read_memory_by_lines, states, threads, seconds / 2, 0);
  const double by_parts = measured(read_memory_by_parts, states, threads, seconds / 2, 0);
  report("read_bytes", by_lines > by_parts ? by_lines : by_parts);
  report("read_by_parts", by_parts > by_lines);
  return 0;
}
