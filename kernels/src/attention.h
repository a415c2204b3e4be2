// Attention straight from the block tables, a partition of positions at a time.
// A query's result depends on its own row and position alone: partitions lie at fixed positions,
// and partial results are merged in their order, whoever computed them.
#pragma once
#include <cmath>

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

// Walk positions [begin, end) in runs inside one block: f(position, block, offset, length).
template <class F>
inline void each_run(const KVStore& kv, const int32_t* table, int begin, int end, F f) {
  for (int p = begin; p < end;) {
    const int offset = p % kv.block_size, length = smaller(kv.block_size - offset, end - p);
    f(p, table[p / kv.block_size], offset, length);
    p += length;
  }
}

// scores[i][p - begin] = query i . key p
template <class T, int N>
void score(const Model& m, const KVStore& kv, const QueryGroup& g, int begin, int end,
           float (*scores)[kPartition + kLanes]) {
  const int final_block = g.highest() / kv.block_size;
  each_run(kv, g.table, begin, end, [&](int p, int block, int offset, int length) {
    const T* keys = kv.keys<T>(m, g.layer, block, g.kv_head);
    const T* values = kv.values<T>(m, g.layer, block, g.kv_head);
    const int ahead = g.table[smaller(p / kv.block_size + 2, final_block)];
    const T* next = kv.keys<T>(m, g.layer, ahead, g.kv_head);
    for (int t = 0; t < length; t += kLanes) {
      const int n = smaller(kLanes, kv.block_size - offset - t);
      const T* column = keys + offset + t;
      Lanes even[N], odd[N];  // head_dim is even; two sums hide the latency of FMA
      UNROLL for (int i = 0; i < N; ++i)
        even[i] = odd[i] = zeros();
      for (int d = 0; d < g.head_dim; d += 2, column += 2 * kv.block_size) {
        prefetch(next + static_cast<size_t>(d) * kv.block_size);
        prefetch(values + static_cast<size_t>(d) * kv.block_size);
        const Lanes key0 = n == kLanes ? load(column) : load_part(column, n);
        UNROLL for (int i = 0; i < N; ++i)
          even[i] = fma(splat(g.values[d * N + i]), key0, even[i]);
        const T* second = column + kv.block_size;
        const Lanes key1 = n == kLanes ? load(second) : load_part(second, n);
        UNROLL for (int i = 0; i < N; ++i)
          odd[i] = fma(splat(g.values[(d + 1) * N + i]), key1, odd[i]);
      }
      UNROLL for (int i = 0; i < N; ++i)
        store(&scores[i][p + t - begin], add(even[i], odd[i]));
    }
  });
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
  for (int i = 0; i < count; i += kLanes) {
    const Lanes weight =
        *peak == kNothing ? zeros() : exponential(sub(load(scores + i), splat(*peak)));
    sums = add(sums, weight);
    store(scores + i, weight);
  }
  *total = sum(sums);
}

// out[i][d..] = sum over p of weights[i][p - begin] * value p, for V vectors from `d` on.
template <class T, int N, int V>
void mix_slice(const Model& m, const KVStore& kv, const QueryGroup& g, int begin, int end,
               const float (*weights)[kPartition + kLanes], int d, float* out) {
  const int n = smaller(kLanes, g.head_dim - d - (V - 1) * kLanes);  // lanes of the last vector
  Lanes sums[N][V];
  UNROLL for (auto& row : sums) UNROLL
    for (Lanes& total : row) total = zeros();
  each_run(kv, g.table, begin, end, [&](int p, int block, int offset, int length) {
    const T* values =
        kv.values<T>(m, g.layer, block, g.kv_head) + static_cast<size_t>(offset) * g.head_dim + d;
    for (int t = 0; t < length; ++t, values += g.head_dim) {
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
  alignas(64) float scores[N][kPartition + kLanes];
  score<T, N>(m, kv, g, begin, end, scores);
  for (int i = 0; i < N; ++i)
    weigh(scores[i], begin, end, g.first[i], g.last[i], out.largest + i, out.total + i);
  int d = 0;
  for (; d + (kValueLanes - 1) * kLanes < g.head_dim; d += kValueLanes * kLanes)
    mix_slice<T, N, kValueLanes>(m, kv, g, begin, end, scores, d, out.values);
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

inline float decay(float exponent) { return largest(exponential(splat(exponent))); }

// Merge the next partition into what was seen before it.
inline void merge(const QueryGroup& g, const Softmax& seen, const Softmax& next) {
  const int stride = round_up(g.head_dim, kLanes);
  for (int i = 0; i < g.count; ++i) {
    if (next.largest[i] == kNothing) continue;
    const float peak = seen.largest[i] > next.largest[i] ? seen.largest[i] : next.largest[i];
    const float keep = decay(seen.largest[i] - peak), take = decay(next.largest[i] - peak);
    seen.largest[i] = peak;
    seen.total[i] = seen.total[i] * keep + next.total[i] * take;
    float *a = seen.values + i * stride, *b = next.values + i * stride;
    for (int d = 0; d < stride; d += kLanes)
      store(a + d, fma(load(a + d), splat(keep), mul(load(b + d), splat(take))));
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
