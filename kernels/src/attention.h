// Attention straight from the block tables, a partition of positions at a time.
// A query's result depends on its own row and position alone. Partitions, and spans of partitions,
// begin at fixed positions. They are merged in their order, first within a span and then span by
// span, whichever thread computed them.
#pragma once
#include <cmath>
#include <type_traits>

#include "model.h"
#include "simd.h"

namespace floorline::FLOORLINE_ISA {

constexpr float kNothing = -INFINITY;

// Up to kQueries queries of one slice that read the same kv-head.
struct QueryGroup {
  int count = 0, head_dim = 0;
  const int32_t* table = nullptr;
  int layer = 0, kv_head = 0;
  int first[kQueries], last[kQueries];  // positions that each may see
  float* out[kQueries];
  alignas(64) float values[kMaxHeadDim * kQueries];  // [head_dim][count]

  int lowest() const {
    int low = first[0];
    for (int i = 1; i < count; ++i) low = smaller(low, first[i]);
    return low;
  }
  int highest() const {
    int high = last[0];
    for (int i = 1; i < count; ++i) high = larger(high, last[i]);
    return high;
  }
};

// What softmax has seen so far: largest score, sum of weights, weighted values [count][head_dim].
struct Softmax {
  float *largest, *total, *values;

  explicit Softmax(float* memory)
      : largest(memory), total(memory + kQueries), values(memory + 2 * kQueries) {}
  static size_t floats(int head_dim) {
    return static_cast<size_t>(kQueries) * (2 + round_up(head_dim, kLanes));
  }
};

// Walk positions [begin, end) in runs inside one block: f(position, index in the block table,
// offset in the block, length).
template <class F>
inline void each_run(const KVStore& kv, int begin, int end, F f) {
  int index = begin / kv.block_size, offset = begin % kv.block_size;
  for (int p = begin, length; p < end; p += length, ++index, offset = 0) {
    length = smaller(kv.block_size - offset, end - p);
    f(p, index, offset, length);
  }
}

// How many vectors N queries take at once: as many as their sums have registers, a power of two.
constexpr int vectors_beside(int n) {
  return 4 * n <= kAccumulators ? 4 : 2 * n <= kAccumulators ? 2 : 1;
}

// Say whether to prefetch this vector of T: two of each cache line where a line holds several,
// because a single prefetch is sometimes dropped.
template <class T>
constexpr bool at_half_line(int vector) {
  return vector * kLanes * sizeof(T) % 32 == 0;
}

template <class T>
constexpr bool kScaled = std::is_same_v<T, int8_t>;  // a scale for each key and for each value

// Up to 16 positions of one block: their keys, and their values, which are read next.
template <class T>
struct Column {
  const T *keys, *values;
  int index, count;  // of its first score; of positions
};

// scores[i][index..] = query i . keys, for C columns at once. With C > 1 all are whole.
template <class T, int N, int C>
void score_columns(const QueryGroup& g, int block_size, const Column<T>* columns,
                   float (*scores)[kPartition + kLanes]) {
  Lanes sums[C][N];
  UNROLL for (auto& column : sums) UNROLL
    for (Lanes& total : column) total = zeros();
  for (int d = 0; d < g.head_dim; ++d) UNROLL
    for (int c = 0; c < C; ++c) {
      if (at_half_line<T>(d)) prefetch(columns[c].values + d * kLanes);
      const T* keys = columns[c].keys + static_cast<size_t>(d) * block_size;
      const int n = columns[c].count;
      const Lanes key = C > 1 || n == kLanes ? load(keys) : load_part(keys, n);
      UNROLL for (int i = 0; i < N; ++i)
        sums[c][i] = fma(splat(g.values[d * N + i]), key, sums[c][i]);
    }
  UNROLL for (int c = 0; c < C; ++c) UNROLL
    for (int i = 0; i < N; ++i) store(&scores[i][columns[c].index], sums[c][i]);
}

// scores[i][p - begin] = query i . key p
template <class T, int N>
void score(const Model& m, const KVStore& kv, const QueryGroup& g, int begin, int end,
           float (*scores)[kPartition + kLanes]) {
  constexpr int C = vectors_beside(N);
  Column<T> columns[kPartition + C];
  int count = 0;
  each_run(kv, begin, end, [&](int p, int index, int offset, int length) {
    const int block = g.table[index];
    const T* keys = kv.keys<T>(m, g.layer, block, g.kv_head) + offset;
    const T* values = kv.values<T>(m, g.layer, block, g.kv_head) + offset * g.head_dim;
    for (int t = 0; t < length; t += kLanes)
      columns[count++] = {keys + t, values + t * g.head_dim, p + t - begin,
                          smaller(kLanes, kv.block_size - offset - t)};
  });
  if (kv.block_size % kLanes == 0) {
    for (int c = 0; c < C; ++c) columns[count + c] = columns[count - 1];  // fills up the last C
    for (int i = 0; i < count; i += C)
      score_columns<T, N, C>(g, kv.block_size, columns + i, scores);
  } else {
    for (int i = 0; i < count; ++i)
      score_columns<T, N, 1>(g, kv.block_size, columns + i, scores);
  }
}

// scales[0][p - begin] of key p, scales[1][p - begin] of value p
inline void collect_scales(const Model& m, const KVStore& kv, const QueryGroup& g, int begin,
                           int end, float (*scales)[kPartition + kLanes]) {
  each_run(kv, begin, end, [&](int p, int index, int offset, int length) {
    const Half* stored = kv.scales(m, g.layer, g.table[index], g.kv_head) + offset;
    for (int t = 0; t < length; t += kLanes) {
      const int n = smaller(kLanes, kv.block_size - offset - t), i = p + t - begin;
      store(&scales[0][i], load_part(stored + t, n));
      store(&scales[1][i], load_part(stored + kv.block_size + t, n));
    }
  });
}

inline void multiply_by(float* x, const float* factors, int count) {
  for (int i = 0; i < count; i += kLanes) store(x + i, mul(load(x + i), load(factors + i)));
}

// Turn one query's scores into weights, zero outside [first, last].
inline void weigh(float* scores, int begin, int end, int first, int last, float* peak,
                  float* total) {
  const int count = round_up(end - begin, kLanes);
  for (int i = 0; i < smaller(first - begin, count); ++i) scores[i] = kNothing;
  for (int i = larger(last + 1 - begin, 0); i < count; ++i) scores[i] = kNothing;
  Lanes high = splat(kNothing), sums = zeros();
  for (int i = 0; i < count; i += kLanes) high = maximum(high, load(scores + i));
  *peak = largest(high);
  const Lanes base = splat(*peak == kNothing ? 0.f : *peak);  // e^(-inf - 0) is 0
  for (int i = 0; i < count; i += kLanes) {
    const Lanes weight = exponential(sub(load(scores + i), base));
    sums = add(sums, weight);
    store(scores + i, weight);
  }
  *total = sum(sums);
}

// Where the keys lie that are read one partition later: in this kv-head or, after its last
// partition, in the next one.
struct Lookahead {
  const Model& m;
  const KVStore& kv;
  const QueryGroup& g;
  const int blocks = kPartition / kv.block_size;
  const int first = g.lowest() / kv.block_size, final = g.highest() / kv.block_size;

  template <class T>
  const T* keys(int index) const {
    const int beyond = index + blocks - final - 1;
    if (beyond < 0) return kv.keys<T>(m, g.layer, g.table[index + blocks], g.kv_head);
    const bool last = g.kv_head + 1 == m.kv_heads;
    const int block = g.table[last ? final : smaller(first + beyond, final)];
    return kv.keys<T>(m, g.layer, block, g.kv_head + !last);
  }
};

// out[i][d..] = sum over p of weights[i][p - begin] * value p, for V vectors from `d` on.
template <class T, int N, int V>
void mix_slice(const Model& m, const KVStore& kv, const QueryGroup& g, int begin, int end,
               const float (*weights)[kPartition + kLanes], int d, float* out) {
  const int n = smaller(kLanes, g.head_dim - d - (V - 1) * kLanes);  // lanes of the last vector
  Lanes sums[N][V];
  UNROLL for (auto& row : sums) UNROLL
    for (Lanes& total : row) total = zeros();
  const Lookahead ahead{m, kv, g};
  each_run(kv, begin, end, [&](int p, int index, int offset, int length) {
    const int start = offset * g.head_dim + d;
    const T* values = kv.values<T>(m, g.layer, g.table[index], g.kv_head) + start;
    const T* keys = ahead.keys<T>(index);
    if constexpr (kScaled<T>) prefetch(keys + 2 * kv.block_size * g.head_dim);  // its scales
    const T* next = keys + start;  // keys take as much room as values
    for (int t = 0; t < length; ++t, values += g.head_dim, next += g.head_dim) {
      UNROLL for (int v = 0; v < V; ++v)
        if (at_half_line<T>(v)) prefetch(next + v * kLanes);
      Lanes value[V];
      UNROLL for (int v = 0; v < V; ++v)
        value[v] = v < V - 1 || n == kLanes ? load(values + v * kLanes)
                                            : load_part(values + v * kLanes, n);
      UNROLL for (int i = 0; i < N; ++i) {
        const Lanes weight = splat(weights[i][p + t - begin]);
        UNROLL for (int v = 0; v < V; ++v)
          sums[i][v] = fma(weight, value[v], sums[i][v]);
      }
    }
  });
  const int stride = round_up(g.head_dim, kLanes);
  UNROLL for (int i = 0; i < N; ++i) UNROLL
    for (int v = 0; v < V; ++v) store(out + i * stride + d + v * kLanes, sums[i][v]);
}

template <class T, int N>
void attend_partition(const Model& m, const KVStore& kv, const QueryGroup& g, int partition,
                      const Softmax& out) {
  const int begin = larger(partition * kPartition, g.lowest() / kLanes * kLanes);
  const int end = smaller((partition + 1) * kPartition, g.highest() + 1);
  if (begin >= end) {
    for (int i = 0; i < N; ++i) out.largest[i] = kNothing;
    return;
  }
  alignas(64) float scores[N][kPartition + kLanes], scales[2][kPartition + kLanes];
  if constexpr (kScaled<T>) collect_scales(m, kv, g, begin, end, scales);
  score<T, N>(m, kv, g, begin, end, scores);
  for (int i = 0; i < N; ++i) {
    if constexpr (kScaled<T>) multiply_by(scores[i], scales[0], end - begin);
    weigh(scores[i], begin, end, g.first[i], g.last[i], out.largest + i, out.total + i);
    if constexpr (kScaled<T>) multiply_by(scores[i], scales[1], end - begin);
  }
  constexpr int V = vectors_beside(N);
  int d = 0;
  for (; d + (V - 1) * kLanes < g.head_dim; d += V * kLanes)
    mix_slice<T, N, V>(m, kv, g, begin, end, scores, d, out.values);
  for (; d < g.head_dim; d += kLanes)
    mix_slice<T, N, 1>(m, kv, g, begin, end, scores, d, out.values);
}

template <class T>
void attend(const Model& m, const KVStore& kv, const QueryGroup& g, int partition,
            const Softmax& out) {
  switch (g.count) {
    case 1: return attend_partition<T, 1>(m, kv, g, partition, out);
    case 2: return attend_partition<T, 2>(m, kv, g, partition, out);
    case 3: return attend_partition<T, 3>(m, kv, g, partition, out);
    case 4: return attend_partition<T, 4>(m, kv, g, partition, out);
    case 5: return attend_partition<T, 5>(m, kv, g, partition, out);
    case 6: return attend_partition<T, 6>(m, kv, g, partition, out);
    case 7: return attend_partition<T, 7>(m, kv, g, partition, out);
    default: return attend_partition<T, 8>(m, kv, g, partition, out);
  }
}

// Merge the next partition, or the next span of partitions, into what was seen before it.
inline void merge(const QueryGroup& g, const Softmax& seen, const Softmax& next) {
  const int stride = round_up(g.head_dim, kLanes);
  alignas(64) float factors[2 * kQueries] = {};
  static_assert(2 * kQueries == kLanes);
  float *keep = factors, *take = factors + kQueries;
  for (int i = 0; i < g.count; ++i) {
    const float peak = seen.largest[i] > next.largest[i] ? seen.largest[i] : next.largest[i];
    keep[i] = seen.largest[i] - peak;
    take[i] = next.largest[i] - peak;
    seen.largest[i] = peak;
  }
  store(factors, exponential(load(factors)));
  for (int i = 0; i < g.count; ++i) {
    if (next.largest[i] == kNothing) continue;
    seen.total[i] = seen.total[i] * keep[i] + next.total[i] * take[i];
    const Lanes kept = splat(keep[i]), taken = splat(take[i]);
    float *a = seen.values + i * stride, *b = next.values + i * stride;
    for (int d = 0; d < stride; d += kLanes)
      store(a + d, fma(load(a + d), kept, mul(load(b + d), taken)));
  }
}

inline void begin_softmax(const QueryGroup& g, const Softmax& seen) {
  const int stride = round_up(g.head_dim, kLanes);
  for (int i = 0; i < g.count; ++i) seen.largest[i] = kNothing, seen.total[i] = 0.f;
  for (int i = 0; i < g.count * stride; ++i) seen.values[i] = 0.f;
}

inline void finish_softmax(const QueryGroup& g, const Softmax& seen) {
  const int stride = round_up(g.head_dim, kLanes);
  for (int i = 0; i < g.count; ++i)
    for (int d = 0; d < g.head_dim; d += kLanes)
      store_part(g.out[i] + d, div(load(seen.values + i * stride + d), splat(seen.total[i])),
                 smaller(kLanes, g.head_dim - d));
}

}  // namespace floorline::FLOORLINE_ISA
