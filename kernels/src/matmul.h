// Matrix products over packed panels: rows of activations times 16 columns at a time.
// A row's result depends on that row alone: sums run over k in one order, in every tile.
#pragma once
#include "coded.h"
#include "team.h"

namespace floorline::FLOORLINE_ISA {

constexpr int kRowBlock = 96;  // rows whose activations stay in a cache while panels are read
// Up to this many rows, unpacking a coded panel for each tile is cheaper than expanding it once.
constexpr int kDirectRows = 32;
// Bytes of weights that a thread draws at least and passes on at most; and the same where several
// blocks of rows use the same panels.
constexpr int kChunkBytes = 16 << 10;
constexpr int kManyRowsBytes = 96 << 10;

// Multiply R rows, from `row` on, with one panel into out[R][16].
using TileFunction = void (*)(const uint8_t* panel, const Activations& x, int row, int columns,
                              float* out);

template <class T, int R>
void float_tile(const uint8_t* panel, const Activations& x, int row, int columns, float* out) {
  Lanes sums[kChains][R];
  UNROLL for (auto& chain : sums) UNROLL
    for (Lanes& total : chain) total = zeros();
  const float* a = x.values + static_cast<size_t>(row) * x.stride;
  const T* w = reinterpret_cast<const T*>(panel);
  int k = 0;
  for (; k + kChains <= columns; k += kChains) {
    prefetch(reinterpret_cast<const uint8_t*>(w) + kAhead);
    UNROLL for (int c = 0; c < kChains; ++c) {
      const Lanes weights = load(w + c * kLanes);
      UNROLL for (int r = 0; r < R; ++r)
        sums[c][r] = fma(weights, splat(a[static_cast<size_t>(r) * x.stride + k + c]), sums[c][r]);
    }
    w += kChains * kLanes;
  }
  for (; k < columns; ++k, w += kLanes) UNROLL
    for (int r = 0; r < R; ++r)
      sums[0][r] = fma(load(w), splat(a[static_cast<size_t>(r) * x.stride + k]), sums[0][r]);
  UNROLL for (int r = 0; r < R; ++r) {
    Lanes total = sums[0][r];
    if constexpr (kChains == 2) total = add(total, sums[1][r]);
    store(out + r * kLanes, total);
  }
}

// Sum the byte products of one group for R rows; `x` is the first row's group.
template <Format F, int R>
inline void group_dot(const uint8_t* w, const int8_t* x, int stride, const int32_t* starts,
                      int start_stride, Ints (&acc)[R]) {
  if constexpr (F == Format::int4_g32) {
    UNROLL for (Ints& total : acc)
      total = splat(0);
    UNROLL for (int t = 0; t < kGroup / kQuad / 2; ++t) {
      const Bytes both = load_bytes(w + t * kQuadBytes);
      const Bytes low = low_nibbles(both), high = high_nibbles(both);
      UNROLL for (int r = 0; r < R; ++r) {
        const int8_t* xr = x + static_cast<size_t>(r) * stride + t * kQuad;
        acc[r] = dot(dot(acc[r], low, four_bytes(xr)), high, four_bytes(xr + kGroup / 2));
      }
    }
  } else {
    UNROLL for (int r = 0; r < R; ++r)
      acc[r] = signed_start(starts[static_cast<size_t>(r) * start_stride]);
    UNROLL for (int t = 0; t < kGroup / kQuad; ++t) {
      const SignedBytes weights = as_signed(load_bytes(w + t * kQuadBytes));
      UNROLL for (int r = 0; r < R; ++r)
        acc[r] = dot_signed(acc[r], weights,
                            four_bytes(x + static_cast<size_t>(r) * stride + t * kQuad));
    }
  }
}

// Integer weights times int8 activations: sums are exact within a group, and fp32 across groups.
template <Format F, int R>
void integer_tile(const uint8_t* panel, const Activations& x, int row, int columns, float* out) {
  const int groups = round_up(columns, kGroup) / kGroup, group_stride = x.group_stride();
  const int8_t* bytes = x.bytes + static_cast<size_t>(row) * x.byte_stride;
  const float* scales = x.scales + static_cast<size_t>(row) * group_stride;
  const int32_t* starts = x.starts + static_cast<size_t>(row) * group_stride;
  const float* offsets = x.offsets + static_cast<size_t>(row) * group_stride;
  const uint8_t* w = panel + panel_header_bytes(F);
  Lanes totals[R];
  UNROLL for (Lanes& total : totals)
    total = zeros();
  for (int g = 0; g < groups; ++g, bytes += kGroup, ++scales, ++starts, ++offsets) {
    constexpr int kBytes = group_bytes(F);
    UNROLL for (int line = 0; line < kBytes; line += kLineBytes)
      prefetch(w + kAhead + line);
    Ints acc[R];
    group_dot<F, R>(w + group_header_bytes(F), bytes, x.byte_stride, starts, group_stride, acc);
    const Half* header = reinterpret_cast<const Half*>(w);
    UNROLL for (int r = 0; r < R; ++r) {
      const size_t at = static_cast<size_t>(r) * group_stride;
      const Lanes scale = splat(scales[at]);
      if constexpr (F == Format::int8) {
        totals[r] = fma(scale, to_float(acc[r]), totals[r]);
      } else {
        totals[r] = fma(mul(load(header), scale), to_float(acc[r]), totals[r]);
        if constexpr (F == Format::int4_g32)
          totals[r] = fma(load(header + kLanes), splat(offsets[at]), totals[r]);
      }
    }
    w += group_bytes(F);
  }
  const float* column_scales = reinterpret_cast<const float*>(panel);
  UNROLL for (int r = 0; r < R; ++r) {
    if constexpr (F == Format::int8) totals[r] = mul(totals[r], load(column_scales));
    store(out + r * kLanes, totals[r]);
  }
}

// Give the 16 weights of column k in a group as fp32, from the group's first byte.
template <Format F>
inline Lanes group_weights(const uint8_t* w, int k, Lanes scale, Lanes minimum) {
  constexpr int kHalf = kGroup / 2;
  const int quad = F == Format::int4_g32 ? k % kHalf / kQuad : k / kQuad;
  Bytes bytes = load_bytes(w + group_header_bytes(F) + quad * kQuadBytes);
  if constexpr (F == Format::int4_g32) bytes = k < kHalf ? low_nibbles(bytes) : high_nibbles(bytes);
  Lanes q;
  switch (k % kQuad) {
    case 0: q = byte_lane<0>(bytes); break;
    case 1: q = byte_lane<1>(bytes); break;
    case 2: q = byte_lane<2>(bytes); break;
    default: q = byte_lane<3>(bytes);
  }
  if constexpr (F == Format::int4_g32) return fma(q, scale, minimum);
  return mul(sub(q, splat(static_cast<float>(kByteZero))), scale);
}

// Integer weights times fp32 activations: the reference for the integer arithmetic.
template <Format F, int R>
void dequantised_tile(const uint8_t* panel, const Activations& x, int row, int columns,
                      float* out) {
  const uint8_t* w = panel + panel_header_bytes(F);
  const float* a = x.values + static_cast<size_t>(row) * x.stride;
  Lanes totals[R], scale = splat(0.f), lowest = splat(0.f);
  UNROLL for (Lanes& total : totals)
    total = zeros();
  if constexpr (F == Format::int8) scale = load(reinterpret_cast<const float*>(panel));
  for (int k0 = 0; k0 < columns; k0 += kGroup) {
    const Half* header = reinterpret_cast<const Half*>(w);
    if constexpr (F != Format::int8) scale = load(header);
    if constexpr (F == Format::int4_g32) lowest = load(header + kLanes);
    const int n = smaller(kGroup, columns - k0);
    for (int k = 0; k < n; ++k) {
      const Lanes weights = group_weights<F>(w, k, scale, lowest);
      UNROLL for (int r = 0; r < R; ++r)
        totals[r] = fma(weights, splat(a[static_cast<size_t>(r) * x.stride + k0 + k]), totals[r]);
    }
    w += group_bytes(F);
  }
  UNROLL for (int r = 0; r < R; ++r)
    store(out + r * kLanes, totals[r]);
}

// Where `expand` is set and there are more than `direct_rows` rows, a panel is expanded first, and
// the tiles of expanded panels multiply it.
struct TileSet {
  const TileFunction* by_rows;  // [rows - 1]
  int max_rows;
  int direct_rows = 0;
  void (*expand)(const uint8_t* panel, int columns, uint8_t* out) = nullptr;
  const TileFunction* expanded_by_rows = nullptr;
  int expanded_max_rows = 0;
};

template <class T, int... I>
TileSet float_tiles(std::integer_sequence<int, I...>) {
  static constexpr TileFunction kTiles[] = {float_tile<T, I + 1>...};
  return {kTiles, sizeof...(I)};
}
template <Format F, int... I>
TileSet integer_tiles(std::integer_sequence<int, I...>) {
  static constexpr TileFunction kTiles[] = {integer_tile<F, I + 1>...};
  return {kTiles, sizeof...(I)};
}
template <Format F, int... I>
TileSet dequantised_tiles(std::integer_sequence<int, I...>) {
  static constexpr TileFunction kTiles[] = {dequantised_tile<F, I + 1>...};
  return {kTiles, sizeof...(I)};
}

template <Format F>
TileSet quantised_tiles(bool integer_activations) {
  if (integer_activations) return integer_tiles<F>(std::make_integer_sequence<int, kIntegerRows>());
  return dequantised_tiles<F>(std::make_integer_sequence<int, 4>());
}

template <Format F, int... I>
TileSet coded_tiles(std::integer_sequence<int, I...>) {
  static constexpr TileFunction kTiles[] = {coded_tile<F, I + 1>...};
  return {kTiles, sizeof...(I)};
}
template <int Scales, bool Minima, bool Biased, int... I>
TileSet expanded_tiles(std::integer_sequence<int, I...>) {
  static constexpr TileFunction kTiles[] = {expanded_tile<Scales, Minima, Biased, I + 1>...};
  return {kTiles, sizeof...(I)};
}

inline TileSet coded_tiles_for(Format format, bool integer_activations) {
  return with_coded(format, [&](auto f) {
    TileSet tiles{nullptr, 0};
    TileSet after = float_tiles<float>(std::make_integer_sequence<int, kFloatRows>());
    if (integer_activations) {
      tiles = coded_tiles<f>(std::make_integer_sequence<int, kCodedRows>());
      tiles.direct_rows = kDirectRows;
      after = expanded_tiles<kCoding<f>.scales, kCoding<f>.minima, biased(f)>(
          std::make_integer_sequence<int, kIntegerRows>());
    }
    tiles.expand = integer_activations ? expand<f> : expand_floats<f>;
    tiles.expanded_by_rows = after.by_rows;
    tiles.expanded_max_rows = after.max_rows;
    return tiles;
  });
}

inline TileSet tiles_for(Format format, bool integer_activations) {
  if (is_coded(format)) return coded_tiles_for(format, integer_activations);
  const std::make_integer_sequence<int, kFloatRows> rows;
  switch (format) {
    case Format::fp32: return float_tiles<float>(rows);
    case Format::fp16: return float_tiles<Half>(rows);
    case Format::int8: return quantised_tiles<Format::int8>(integer_activations);
    case Format::int8_g32: return quantised_tiles<Format::int8_g32>(integer_activations);
    default: return quantised_tiles<Format::int4_g32>(integer_activations);
  }
}

}  // namespace floorline::FLOORLINE_ISA
