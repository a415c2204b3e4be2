// Panels in a file's own blocks: what a code stands for, and products with them. layout.h draws the
// blocks.
//
// Few rows are multiplied with the codes as they are unpacked. For more rows a panel is expanded
// once, to a byte a weight, and multiplied from there. Both ways add the same numbers in the same
// order, so a row's result is the same to the bit.
#pragma once
#include <utility>

#include "model.h"
#include "simd.h"

namespace floorline::FLOORLINE_ISA {

constexpr int kAhead = 8192;  // bytes between a prefetch and its use: about 200 ns of reading
constexpr int kQuads = kGroup / kQuad;

// The tables of kinds whose codes are looked up, with the zero of coding() added.
// Source: ggml-common.h, kvalues_iq4nl and kvalues_mxfp4.
alignas(16) constexpr uint8_t kIq4[] = {1,   24,  45,  63,  79,  93,  106, 118,
                                        129, 141, 153, 166, 181, 197, 217, 241};
alignas(16) constexpr uint8_t kMxfp4[] = {12, 13, 14, 15, 16, 18, 20, 24,
                                          12, 11, 10, 9,  8,  6,  4,  0};

constexpr bool looked_up(Format f) {
  return f == Format::iq4_nl || f == Format::iq4_xs || f == Format::mxfp4;
}
// Whether codes need all eight bits: then they are multiplied as value + 128.
constexpr bool biased(Format f) { return coding(f).zero == kByteZero; }

// What multiplies the codes of one block: a scale for each group or half of one, and minima.
struct BlockScales {
  static constexpr int kGroups = kMaxBlock / kGroup;
  Lanes scale[2 * kGroups], minimum[kGroups];
};

// Call f(0), f(1) … f(N - 1), each with its number known to the compiler.
template <int N, class F>
inline void each(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, N>());
}

// Of a block of several groups. A function of its own: inlined into every tile, it would make the
// kernels take twice as long to compile.
template <Format F>
[[gnu::noinline]] void read_scales(const uint8_t* panel, int block, const uint8_t* header,
                                   BlockScales& s) {
  constexpr int kHalves = kLanes * sizeof(Half), kWords = kLanes * sizeof(uint32_t);
  auto halves = [&](const uint8_t* p) { return load(reinterpret_cast<const Half*>(p)); };
  if constexpr (F == Format::q4_k || F == Format::q5_k) {
    const Lanes factor = halves(header), lower = sub(zeros(), halves(header + kHalves));
    const uint8_t* words = header + 2 * kHalves;
    const Ints low = load_words(words), low_minima = load_words(words + kWords);
    const Ints high = load_words(words + 2 * kWords);
    each<BlockScales::kGroups>([&](auto g) {
      const Ints scale = either(field<4 * g, 15>(low), field<4 * g - 4, 0x30>(high));
      const Ints minimum = either(field<4 * g, 15>(low_minima), field<4 * g - 2, 0x30>(high));
      s.scale[g] = mul(factor, to_float(scale));
      s.minimum[g] = mul(lower, to_float(minimum));
    });
  } else if constexpr (F == Format::q6_k) {
    const Lanes factor = halves(panel + block * kCoding<F>.factor_bytes);
    const int8_t* scales = reinterpret_cast<const int8_t*>(header);
    each<2 * BlockScales::kGroups>([&](auto i) {
      s.scale[i] = mul(factor, load(scales + i * kLanes));
    });
  } else if constexpr (F == Format::iq4_xs) {
    const Lanes factor = halves(header), centre = splat(32.f);
    const Ints low = load_words(header + kHalves), high = load_halves(header + kHalves + kWords);
    each<BlockScales::kGroups>([&](auto g) {
      const Ints scale = either(field<4 * g, 15>(low), field<2 * g - 4, 0x30>(high));
      s.scale[g] = mul(factor, sub(to_float(scale), centre));
    });
  }
}

// Of a block of one group.
template <Format F>
inline void read_scale(const uint8_t* panel, int block, const uint8_t* header, BlockScales& s) {
  const Half* halves = reinterpret_cast<const Half*>(header);
  if constexpr (F == Format::mxfp4) {
    const Ints exponents = load_small(panel + block * kCoding<F>.factor_bytes);
    s.scale[0] = power_of_two(add(exponents, splat(-128)));
  } else {
    s.scale[0] = load(halves);
    if constexpr (kCoding<F>.minima) s.minimum[0] = load(halves + kLanes);
  }
}

// Give four consecutive codes of each column: those from k = 4 T on.
template <Format F, int T>
inline Bytes codes(const uint8_t* group) {
  constexpr int kHalf = kQuads / 2;
  const Bytes both = load_bytes(group + T % kHalf * kQuadBytes);
  Bytes found = T < kHalf ? low_nibbles(both) : high_nibbles(both);
  const uint8_t* high = group + kNibbleBytes;
  if constexpr (kCoding<F>.high_lines == 1)
    found = with_bits<4 - T, 0x10>(found, load_bytes(high));
  if constexpr (kCoding<F>.high_lines == 2)
    found = with_bits<4 - 2 * (T % kHalf), 0x30>(found, load_bytes(high + T / kHalf * kLineBytes));
  if constexpr (looked_up(F)) found = look_up(F == Format::mxfp4 ? kMxfp4 : kIq4, found);
  return found;
}

// Call each(group, its number, its place in the block, scales) for the groups of `columns`.
template <Format F, class G>
inline void walk_groups(const uint8_t* panel, int columns, G each_group) {
  constexpr int kGroups = kCoding<F>.columns / kGroup, kBytes = coded_group_bytes(F);
  const int groups = round_up(columns, kGroup) / kGroup;
  const int blocks = (groups + kGroups - 1) / kGroups;
  const uint8_t* w = panel + blocks * kCoding<F>.factor_bytes;
  BlockScales scales;
  for (int block = 0; block < blocks; ++block) {
    if constexpr (kGroups == 1) read_scale<F>(panel, block, w, scales);
    else read_scales<F>(panel, block, w, scales);
    each<(kCoding<F>.header_bytes + kLineBytes - 1) / kLineBytes>(
        [&](auto line) { prefetch(w + kAhead + line * kLineBytes); });
    w += kCoding<F>.header_bytes;
    const int first = block * kGroups, n = smaller(kGroups, groups - first);
    for (int i = 0; i < n; ++i, w += kBytes) each_group(w, first + i, i, scales);
  }
}

inline int four_bytes(const int8_t* p) {
  int value;
  std::memcpy(&value, p, 4);
  return value;
}

// The activations of R rows as products with bytes read them.
template <int R>
struct ByteRows {
  ByteRows(const Activations& x, int row)
      : stride(x.byte_stride),
        groups(x.group_stride()),
        bytes(x.bytes + static_cast<size_t>(row) * stride),
        scales(x.scales + static_cast<size_t>(row) * groups),
        starts(x.starts + static_cast<size_t>(row) * groups),
        halves(x.halves + static_cast<size_t>(row) * 2 * groups),
        offsets(x.offsets + static_cast<size_t>(row) * groups) {}

  int quad(int r, int k) const { return four_bytes(bytes + static_cast<size_t>(r) * stride + k); }

  // What takes `zero` off every code of a group, or of the half of one.
  template <int Halves>
  int start(int r, int g, int half, int zero) const {
    const int sum = Halves == 2 ? halves[(static_cast<size_t>(r) * groups + g) * 2 + half]
                                : starts[static_cast<size_t>(r) * groups + g];
    static_assert(kByteZero == 1 << 7);
    return sum * zero >> 7;
  }

  const int stride, groups;
  const int8_t* bytes;
  const float* scales;
  const int32_t *starts, *halves;
  const float* offsets;
};

// Add the product of one group, of R rows. quad(t) gives four codes of each column.
template <int Scales, bool Minima, bool Biased, int R, class Q>
inline void add_group(const ByteRows<R>& x, int g, int zero, Q quad, const Lanes* scale,
                      const Lanes* minimum, Lanes (&totals)[R]) {
  constexpr int kRun = kQuads / Scales;
  each<Scales>([&](auto half) {
    Ints acc[R];
    UNROLL for (int r = 0; r < R; ++r)
      acc[r] = Biased ? signed_start(x.starts[static_cast<size_t>(r) * x.groups + g])
                      : splat(Minima ? 0 : x.template start<Scales>(r, g, half, zero));
    each<kRun>([&](auto i) {
      constexpr int kT = half * kRun + i;
      const Bytes w = quad(std::integral_constant<int, kT>{});
      if constexpr (Biased) {
        const SignedBytes weights = as_signed(w);
        UNROLL for (int r = 0; r < R; ++r)
          acc[r] = dot_signed(acc[r], weights, x.quad(r, g * kGroup + kT * kQuad));
      } else {
        UNROLL for (int r = 0; r < R; ++r)
          acc[r] = dot(acc[r], w, x.quad(r, g * kGroup + kT * kQuad));
      }
    });
    UNROLL for (int r = 0; r < R; ++r) {
      const Lanes by = splat(x.scales[static_cast<size_t>(r) * x.groups + g]);
      totals[r] = fma(mul(scale[half], by), to_float(acc[r]), totals[r]);
    }
  });
  if constexpr (Minima) UNROLL
    for (int r = 0; r < R; ++r)
      totals[r] = fma(*minimum, splat(x.offsets[static_cast<size_t>(r) * x.groups + g]), totals[r]);
}

template <Format F, int R>
void coded_tile(const uint8_t* panel, const Activations& activations, int row, int columns,
                float* out) {
  const ByteRows<R> x(activations, row);
  Lanes totals[R];
  UNROLL for (Lanes& total : totals)
    total = zeros();
  walk_groups<F>(panel, columns, [&](const uint8_t* w, int g, int i, const BlockScales& s) {
    constexpr int kBytes = coded_group_bytes(F);
    each<kBytes / kLineBytes>([&](auto line) { prefetch(w + kAhead + line * kLineBytes); });
    auto quad = [&](auto t) { return codes<F, t>(w); };
    add_group<kCoding<F>.scales, kCoding<F>.minima, biased(F)>(x, g, kCoding<F>.zero, quad, s.scale + kCoding<F>.scales * i,
                                             s.minimum + i, totals);
  });
  UNROLL for (int r = 0; r < R; ++r)
    store(out + r * kLanes, totals[r]);
}

// An expanded panel: a line that holds its zero, then for each group [8][16][4] bytes, its scale or
// two, and its minimum if there are any.
constexpr int expanded_group_bytes(int scales, bool minima) {
  return kQuads * kQuadBytes + (scales + minima) * kLanes * static_cast<int>(sizeof(float));
}

template <Format F>
void expand(const uint8_t* panel, int columns, uint8_t* out) {
  constexpr int kLaneBytes = kLanes * sizeof(float);
  std::memcpy(out, &kCoding<F>.zero, sizeof(int));
  out += kLineBytes;
  walk_groups<F>(panel, columns, [&](const uint8_t* w, int, int i, const BlockScales& s) {
    each<kQuads>([&](auto t) { store(out + t * kQuadBytes, codes<F, t>(w)); });
    uint8_t* numbers = out + kQuads * kQuadBytes;
    each<kCoding<F>.scales>([&](auto h) {
      store(reinterpret_cast<float*>(numbers + h * kLaneBytes), s.scale[kCoding<F>.scales * i + h]);
    });
    if constexpr (kCoding<F>.minima)
      store(reinterpret_cast<float*>(numbers + kCoding<F>.scales * kLaneBytes), s.minimum[i]);
    out += expanded_group_bytes(kCoding<F>.scales, kCoding<F>.minima);
  });
}

template <int Scales, bool Minima, bool Biased, int R>
void expanded_tile(const uint8_t* panel, const Activations& activations, int row, int columns,
                   float* out) {
  const ByteRows<R> x(activations, row);
  int zero;
  std::memcpy(&zero, panel, sizeof zero);
  const int groups = round_up(columns, kGroup) / kGroup;
  const uint8_t* w = panel + kLineBytes;
  Lanes totals[R];
  UNROLL for (Lanes& total : totals)
    total = zeros();
  for (int g = 0; g < groups; ++g, w += expanded_group_bytes(Scales, Minima)) {
    const float* numbers = reinterpret_cast<const float*>(w + kQuads * kQuadBytes);
    Lanes scale[Scales], minimum = zeros();
    each<Scales>([&](auto h) { scale[h] = load(numbers + h * kLanes); });
    if constexpr (Minima) minimum = load(numbers + Scales * kLanes);
    auto quad = [&](auto t) { return load_bytes(w + t * kQuadBytes); };
    add_group<Scales, Minima, Biased>(x, g, zero, quad, scale, &minimum, totals);
  }
  UNROLL for (int r = 0; r < R; ++r)
    store(out + r * kLanes, totals[r]);
}

// Write the weights of one group as fp32 [32][16].
template <Format F>
[[gnu::noinline]] void decode_group(const uint8_t* w, int i, const BlockScales& s, float* out) {
  each<kQuads>([&](auto t) {
    const Bytes quad = codes<F, t>(w);
    const Lanes scale = s.scale[kCoding<F>.scales * i + (kCoding<F>.scales == 2 ? t / (kQuads / 2) : 0)];
    each<kQuad>([&](auto j) {
      const Lanes code = byte_lane<j>(quad);
      const Lanes weight = kCoding<F>.minima
                               ? fma(code, scale, s.minimum[i])
                               : mul(sub(code, splat(static_cast<float>(kCoding<F>.zero))), scale);
      store(out + (t * kQuad + j) * kLanes, weight);
    });
  });
}

// Expand to fp32 [K][16], as fp32 panels are: for the exact twin.
template <Format F>
void expand_floats(const uint8_t* panel, int columns, uint8_t* out) {
  walk_groups<F>(panel, columns, [&](const uint8_t* w, int g, int i, const BlockScales& s) {
    decode_group<F>(w, i, s, reinterpret_cast<float*>(out) + static_cast<size_t>(g) * kGroup * kLanes);
  });
}

template <Format F>
void decode_column(const uint8_t* panel, int column, int columns, float* out) {
  walk_groups<F>(panel, columns, [&](const uint8_t* w, int g, int i, const BlockScales& s) {
    alignas(64) float weights[kGroup * kLanes];
    decode_group<F>(w, i, s, weights);
    const int first = g * kGroup, n = smaller(kGroup, columns - first);
    for (int k = 0; k < n; ++k) out[first + k] = weights[k * kLanes + column];
  });
}

// Give f the coded format as a constant.
template <class F>
inline auto with_coded(Format format, F f) {
  switch (format) {
    case Format::q4_0: return f(std::integral_constant<Format, Format::q4_0>{});
    case Format::q5_0: return f(std::integral_constant<Format, Format::q5_0>{});
    case Format::q5_1: return f(std::integral_constant<Format, Format::q5_1>{});
    case Format::q4_k: return f(std::integral_constant<Format, Format::q4_k>{});
    case Format::q5_k: return f(std::integral_constant<Format, Format::q5_k>{});
    case Format::q6_k: return f(std::integral_constant<Format, Format::q6_k>{});
    case Format::iq4_nl: return f(std::integral_constant<Format, Format::iq4_nl>{});
    case Format::iq4_xs: return f(std::integral_constant<Format, Format::iq4_xs>{});
    default: return f(std::integral_constant<Format, Format::mxfp4>{});
  }
}

inline void unpack_coded(Format format, const uint8_t* panel, int column, int columns, float* out) {
  with_coded(format, [&](auto f) { decode_column<f>(panel, column, columns, out); });
}

}  // namespace floorline::FLOORLINE_ISA
