// What is computed for one row of a step alone: embedding, norm, quantisation, rotary positions.
#pragma once
#include <cmath>

#include "coded.h"
#include "model.h"

namespace floorline::FLOORLINE_ISA {

// Give the k-th weight of one column of a panel.
template <Format F>
inline float weight_at(const uint8_t* panel, int column, int k) {
  if constexpr (F == Format::fp32) {
    return reinterpret_cast<const float*>(panel)[k * kLanes + column];
  } else if constexpr (F == Format::fp16) {
    return to_float(reinterpret_cast<const Half*>(panel)[k * kLanes + column]);
  } else {
    const uint8_t* group = panel + panel_header_bytes(F) + k / kGroup * group_bytes(F);
    const uint8_t* weights = group + group_header_bytes(F);
    const Half* header = reinterpret_cast<const Half*>(group);
    const int j = k % kGroup;
    if constexpr (F == Format::int4_g32) {
      constexpr int kHalf = kGroup / 2;
      const uint8_t both = weights[byte_at(j % kHalf, column)];
      return to_float(header[column]) * static_cast<float>(j < kHalf ? both & 15 : both >> 4) +
             to_float(header[kLanes + column]);
    } else {
      const float scale = F == Format::int8 ? reinterpret_cast<const float*>(panel)[column]
                                            : to_float(header[column]);
      return static_cast<float>(weights[byte_at(j, column)] - kByteZero) * scale;
    }
  }
}

template <Format F>
inline void unpack_column(const uint8_t* panel, int column, int count, float* out) {
  for (int k = 0; k < count; ++k) out[k] = weight_at<F>(panel, column, k);
}

// Write the weights of one matrix row, which is a column of a panel, to out[columns].
inline void unpack_row(const Matrix& m, int row, float* out) {
  const uint8_t* panel = m.panels + row / kLanes * m.pitch;
  const int column = row % kLanes, count = m.columns;
  switch (m.format) {
    case Format::fp32: return unpack_column<Format::fp32>(panel, column, count, out);
    case Format::fp16: return unpack_column<Format::fp16>(panel, column, count, out);
    case Format::int8: return unpack_column<Format::int8>(panel, column, count, out);
    case Format::int8_g32: return unpack_column<Format::int8_g32>(panel, column, count, out);
    case Format::int4_g32: return unpack_column<Format::int4_g32>(panel, column, count, out);
    default: return unpack_coded(m.format, panel, column, count, out);
  }
}

// out = x / sqrt(mean(x^2) + eps) * weight
inline void rms_norm(const float* x, const float* weight, int width, float eps, float* out) {
  Lanes squares = zeros();
  for (int i = 0; i < width; i += kLanes) {
    const Lanes v = load_part(x + i, smaller(kLanes, width - i));
    squares = fma(v, v, squares);
  }
  const float scale = 1.f / std::sqrt(sum(squares) / static_cast<float>(width) + eps);
  for (int i = 0; i < width; i += kLanes) {
    const int n = smaller(kLanes, width - i);
    store_part(out + i, mul(mul(load_part(x + i, n), splat(scale)), load_part(weight + i, n)), n);
  }
}

constexpr float kSmallest = 1e-30f;  // a group below it becomes zero: its inverse would overflow

// Quantise a row to int8 with one scale a group of 32. A NaN or infinity makes its group NaN.
inline void quantise(const Activations& a, int row) {
  const float* x = a.values + static_cast<size_t>(row) * a.stride;
  int8_t* bytes = a.bytes + static_cast<size_t>(row) * a.byte_stride;
  float* scales = a.scales + static_cast<size_t>(row) * a.group_stride();
  int32_t* starts = a.starts + static_cast<size_t>(row) * a.group_stride();
  float* offsets = a.offsets + static_cast<size_t>(row) * a.group_stride();
  for (int g = 0; g < a.group_stride(); ++g, x += kGroup, bytes += kGroup) {
    Lanes low = load(x), high = load(x + kLanes);
    const float poison = sum(add(sub(low, low), sub(high, high)));  // 0, or NaN
    if (poison != 0.f) low = high = zeros();
    const float peak = largest(maximum(absolute(low), absolute(high)));
    const Lanes inverse = splat(peak > kSmallest ? 127.f / peak : 0.f);
    const Ints q0 = to_nearest(mul(low, inverse)), q1 = to_nearest(mul(high, inverse));
    store_bytes(bytes, q0);
    store_bytes(bytes + kLanes, q1);
    scales[g] = peak / 127.f + poison;
    const int total = sum(add(q0, q1));
    if (a.halves) {
      int32_t* halves = a.halves + (static_cast<size_t>(row) * a.group_stride() + g) * 2;
      halves[0] = -kByteZero * sum(q0);
      halves[1] = -kByteZero * total - halves[0];
    }
    starts[g] = -kByteZero * total;
    offsets[g] = scales[g] * static_cast<float>(total);
  }
}

// Find the greatest of x. Returns: its first index, or -1 if one is NaN or the greatest infinite.
inline int32_t greatest(const float* x, int width) {
  constexpr int kRun = 64 * kLanes;  // the first pass notes the run, the second searches it alone
  float peak = -INFINITY, total = 0.f;
  Lanes totals = zeros();
  int found = 0;
  for (int begin = 0; begin < width; begin += kRun) {
    const int end = smaller(begin + kRun, width);
    Lanes high = splat(peak);
    int i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      high = maximum(load(x + i), high);
      totals = add(totals, load(x + i));
    }
    float run_peak = largest(high);
    for (; i < end; ++i) {
      run_peak = x[i] > run_peak ? x[i] : run_peak;
      total += x[i];
    }
    if (run_peak > peak) peak = run_peak, found = begin;
  }
  if (!std::isfinite(peak) || std::isnan(total + sum(totals))) return -1;
  while (x[found] != peak) ++found;
  return found;
}

// Cosines, then sines, of one position: angles[head_dim].
inline void rotary_angles(const Model& m, int position, float* angles) {
  const int half = m.head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * m.inverse_frequencies[i];
    angles[i] = std::cos(angle);
    angles[half + i] = std::sin(angle);
  }
}

// Rotate the halves of one head in place, and scale it.
inline void rotate(float* x, const float* angles, int head_dim, float scale) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int n = smaller(kLanes, half - i);
    const Lanes c = mul(load_part(angles + i, n), splat(scale));
    const Lanes s = mul(load_part(angles + half + i, n), splat(scale));
    const Lanes a = load_part(x + i, n), b = load_part(x + half + i, n);
    store_part(x + i, sub(mul(a, c), mul(b, s)), n);
    store_part(x + half + i, fma(b, c, mul(a, s)), n);
  }
}

// Write `count` values `stride` apart. Of the two overloads the first writes fp32 and fp16, which
// have no scale, the second int8.
template <class T>
inline void scatter(const float* x, int count, T* out, int stride, Half*) {
  T narrow[kLanes];
  for (int i = 0; i < count; i += kLanes) {
    const int n = smaller(kLanes, count - i);
    store_part(narrow, load_part(x + i, n), n);
    for (int j = 0; j < n; ++j) out[static_cast<size_t>(i + j) * stride] = narrow[j];
  }
}

// The scale is rounded to fp16 first, then values to its multiples. A NaN or infinity makes it NaN.
inline void scatter(const float* x, int count, int8_t* out, int stride, Half* scale) {
  Lanes peaks = zeros(), poison = zeros();  // 0, or NaN
  for (int i = 0; i < count; i += kLanes) {
    const Lanes v = load_part(x + i, smaller(kLanes, count - i));
    peaks = maximum(peaks, absolute(v));
    poison = add(poison, sub(v, v));
  }
  *scale = to_half(largest(peaks) / 127.f + sum(poison));
  const float step = to_float(*scale), inverse = step > 0.f ? 1.f / step : 0.f;
  int8_t narrow[kLanes];
  for (int i = 0; i < count; i += kLanes) {
    const int n = smaller(kLanes, count - i);
    const Lanes v = mul(load_part(x + i, n), splat(inverse));
    store_bytes(narrow, to_nearest(minimum(splat(127.f), maximum(splat(-127.f), v))));
    for (int j = 0; j < n; ++j) out[static_cast<size_t>(i + j) * stride] = narrow[j];
  }
}

// Norm and rotate one key of a row, and write it and its value to the KV store.
template <class T>
void place_head(const Model& m, const Layer& layer, int index, const KVStore& kv, int slot,
                const float* angles, float* qkv, int head) {
  const int d = m.head_dim, block = slot / kv.block_size, offset = slot % kv.block_size;
  float *k = qkv + m.q_width() + head * d, *v = k + m.kv_width();
  if (layer.k_norm) rms_norm(k, layer.k_norm, d, m.norm_eps, k);
  rotate(k, angles, d, 1.f);
  T *keys = kv.keys<T>(m, index, block, head), *values = kv.values<T>(m, index, block, head);
  Half* scales = kv.scales(m, index, block, head) + offset;
  scatter(k, d, keys + offset, kv.block_size, scales);
  scatter(v, d, values + static_cast<size_t>(offset) * d, 1, scales + kv.block_size);
}

// Norm and rotate the queries and keys of a row, and write its keys and values to the KV store.
template <class T>
void place_row(const Model& m, const Layer& layer, int index, const KVStore& kv, int slot,
               const float* angles, float* qkv) {
  const float scale = 1.f / std::sqrt(static_cast<float>(m.head_dim));
  for (int h = 0; h < m.heads; ++h) {
    float* q = qkv + h * m.head_dim;
    if (layer.q_norm) rms_norm(q, layer.q_norm, m.head_dim, m.norm_eps, q);
    rotate(q, angles, m.head_dim, scale);
  }
  for (int h = 0; h < m.kv_heads; ++h)
    place_head<T>(m, layer, index, kv, slot, angles, qkv, h);
}

}  // namespace floorline::FLOORLINE_ISA
