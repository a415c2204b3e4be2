// Sixteen lanes in two AVX2 registers, with FMA and F16C.
#pragma once
#include <immintrin.h>

#include "layout.h"

namespace floorline::FLOORLINE_ISA {

struct Lanes {
  __m256 lo, hi;
};
struct Ints {
  __m256i lo, hi;
};
using Bytes = Ints;   // 16 lanes of 4 unsigned bytes
struct SignedBytes {  // the same minus 128, and their magnitudes
  Ints value, magnitude;
};

constexpr int kChains = 1;
constexpr int kFloatRows = 6;
constexpr int kIntegerRows = 4;
constexpr int kCodedRows = 4;   // of a tile that unpacks codes
constexpr int kAccumulators = 5;

inline Lanes zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Ints splat(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Lanes load(const Half* p) {
  auto half = [](const Half* q) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q)));
  };
  return {half(p), half(p + 8)};
}
inline Lanes load(const int8_t* p) {
  auto eight = [](const int8_t* q) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  };
  return {eight(p), eight(p + 8)};
}
inline void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline void store(Half* p, Lanes x) {
  auto half = [](Half* q, __m256 y) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT));
  };
  half(p, x.lo);
  half(p + 8, x.hi);
}
inline Lanes add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Lanes sub(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Lanes mul(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes div(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes maximum(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline Lanes minimum(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline Lanes absolute(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline float sum(Lanes a) {
  const __m256 y = _mm256_add_ps(a.lo, a.hi);
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
inline float largest(Lanes a) {
  const __m256 y = _mm256_max_ps(a.lo, a.hi);
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
inline Lanes to_float(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline Ints to_nearest(Lanes a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline Lanes power_of_two(Ints n) {
  auto power = [](__m256i i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(i, _mm256_set1_epi32(127)), 23));
  };
  return {power(n.lo), power(n.hi)};
}
inline Lanes zero_below(Lanes y, Lanes x, float limit) {
  auto keep = [limit](__m256 v, __m256 u) {
    return _mm256_and_ps(v, _mm256_cmp_ps(u, _mm256_set1_ps(limit), _CMP_NLT_UQ));
  };
  return {keep(y.lo, x.lo), keep(y.hi, x.hi)};
}
inline Ints add(Ints a, Ints b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline int sum(Ints a) {
  const __m256i y = _mm256_add_epi32(a.lo, a.hi);
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
inline void store_bytes(int8_t* p, Ints x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline Bytes load_bytes(const uint8_t* p) {
  auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline Bytes low_nibbles(Bytes b) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(b.lo, mask), _mm256_and_si256(b.hi, mask)};
}
inline Bytes high_nibbles(Bytes b) {
  return low_nibbles({_mm256_srli_epi16(b.lo, 4), _mm256_srli_epi16(b.hi, 4)});
}
// low, with the bits of `high` that `Mask` keeps once they are moved `Left` (or right) in each byte.
template <int Left, int Mask>
inline Bytes with_bits(Bytes low, Bytes high) {
  auto one = [](__m256i l, __m256i h) {
    const __m256i moved = Left < 0 ? _mm256_srli_epi16(h, -Left) : _mm256_slli_epi16(h, Left);
    return _mm256_or_si256(l, _mm256_and_si256(moved, _mm256_set1_epi8(Mask)));
  };
  return {one(low.lo, high.lo), one(low.hi, high.hi)};
}
inline Bytes look_up(const uint8_t* table, Bytes codes) {  // 16 entries
  const __m256i entries =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(entries, codes.lo), _mm256_shuffle_epi8(entries, codes.hi)};
}
inline void store(uint8_t* p, Bytes b) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), b.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p) + 1, b.hi);
}
inline Ints load_words(const uint8_t* p) { return load_bytes(p); }  // 16 of 32 bits
inline Ints load_halves(const uint8_t* p) {                         // 16 of 16 bits
  auto* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
inline Ints load_small(const uint8_t* p) {  // 16 of 8 bits
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
// The bits that `Mask` keeps once they are moved `Right` (or left) in each lane.
template <int Right, int Mask>
inline Ints field(Ints x) {
  auto one = [](__m256i y) {
    const __m256i moved = Right < 0 ? _mm256_slli_epi32(y, -Right) : _mm256_srli_epi32(y, Right);
    return _mm256_and_si256(moved, _mm256_set1_epi32(Mask));
  };
  return {one(x.lo), one(x.hi)};
}
inline Ints either(Ints a, Ints b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline SignedBytes as_signed(Bytes b) {
  const __m256i flip = _mm256_set1_epi8(-128);
  const Ints value = {_mm256_xor_si256(b.lo, flip), _mm256_xor_si256(b.hi, flip)};
  return {value, {_mm256_abs_epi8(value.lo), _mm256_abs_epi8(value.hi)}};
}
template <int J>
inline Lanes byte_lane(Bytes b) {
  const __m256i mask = _mm256_set1_epi32(255);
  return to_float({_mm256_and_si256(_mm256_srli_epi32(b.lo, 8 * J), mask),
                   _mm256_and_si256(_mm256_srli_epi32(b.hi, 8 * J), mask)});
}
inline __m256i dot(__m256i acc, __m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(w, x);
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  asm("" : "+x"(acc));  // GCC reassociates integer sums and spills every accumulator otherwise
  return acc;
}
inline Ints signed_start(int) { return splat(0); }
inline Ints dot(Ints acc, Bytes w, int x4) {
  const __m256i x = _mm256_set1_epi32(x4);
  return {dot(acc.lo, w.lo, x), dot(acc.hi, w.hi, x)};
}
inline Ints dot_signed(Ints acc, SignedBytes w, int x4) {
  const __m256i x = _mm256_set1_epi32(x4);
  return {dot(acc.lo, w.magnitude.lo, _mm256_sign_epi8(x, w.value.lo)),
          dot(acc.hi, w.magnitude.hi, _mm256_sign_epi8(x, w.value.hi))};
}

}  // namespace floorline::FLOORLINE_ISA
