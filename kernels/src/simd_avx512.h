// Sixteen lanes in one AVX-512 register; byte products by VNNI.
#pragma once
#include <immintrin.h>

#include "layout.h"

namespace floorline::FLOORLINE_ISA {

using Lanes = __m512;
using Ints = __m512i;
using Bytes = __m512i;        // 16 lanes of 4 unsigned bytes
using SignedBytes = __m512i;  // the same, each standing for its value minus 128

constexpr int kChains = 2;      // independent sums over k: hides the latency of FMA
constexpr int kFloatRows = 12;  // rows of a register tile
constexpr int kIntegerRows = 12;
constexpr int kCodedRows = 8;   // of a tile that unpacks codes
constexpr int kAccumulators = 24;  // vectors of sums that attention keeps in registers

inline Lanes zeros() { return _mm512_setzero_ps(); }
inline Lanes splat(float x) { return _mm512_set1_ps(x); }
inline Ints splat(int x) { return _mm512_set1_epi32(x); }
inline Lanes load(const float* p) { return _mm512_loadu_ps(p); }
inline Lanes load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Lanes load(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Lanes load_part(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline Lanes load_part(const Half* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
inline Lanes load_part(const int8_t* p, int n) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), p)));
}
inline void store(float* p, Lanes x) { _mm512_storeu_ps(p, x); }
inline void store_part(float* p, Lanes x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
inline void store_part(Half* p, Lanes x, int n) {
  _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes maximum(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes minimum(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
inline Lanes absolute(Lanes a) { return _mm512_abs_ps(a); }
inline float sum(Lanes a) { return _mm512_reduce_add_ps(a); }
inline float largest(Lanes a) { return _mm512_reduce_max_ps(a); }
inline Lanes to_float(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Ints to_nearest(Lanes a) { return _mm512_cvtps_epi32(a); }
inline Lanes power_of_two(Ints n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, splat(127)), 23));
}
inline Lanes zero_below(Lanes y, Lanes x, float limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, splat(limit), _CMP_NLT_UQ), y);
}
inline int sum(Ints a) { return _mm512_reduce_add_epi32(a); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline void store_bytes(int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x));
}

inline Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes low_nibbles(Bytes b) { return _mm512_and_si512(b, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes b) { return low_nibbles(_mm512_srli_epi16(b, 4)); }
// low, with the bits of `high` that `Mask` keeps once they are moved `Left` (or right) in each byte.
template <int Left, int Mask>
inline Bytes with_bits(Bytes low, Bytes high) {
  const Bytes moved = Left < 0 ? _mm512_srli_epi16(high, -Left) : _mm512_slli_epi16(high, Left);
  constexpr int kOrAnd = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(Mask), kOrAnd);
}
inline Bytes look_up(const uint8_t* table, Bytes codes) {  // 16 entries
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), codes);
}
inline void store(uint8_t* p, Bytes b) { _mm512_storeu_si512(p, b); }
inline Ints load_words(const uint8_t* p) { return _mm512_loadu_si512(p); }  // 16 of 32 bits
inline Ints load_halves(const uint8_t* p) {                                 // 16 of 16 bits
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Ints load_small(const uint8_t* p) {  // 16 of 8 bits
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// The bits that `Mask` keeps once they are moved `Right` (or left) in each lane.
template <int Right, int Mask>
inline Ints field(Ints x) {
  const Ints moved = Right < 0 ? _mm512_slli_epi32(x, -Right) : _mm512_srli_epi32(x, Right);
  return _mm512_and_si512(moved, splat(Mask));
}
inline Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline SignedBytes as_signed(Bytes b) { return b; }
template <int J>
inline Lanes byte_lane(Bytes b) {
  return to_float(_mm512_and_si512(_mm512_srli_epi32(b, 8 * J), splat(255)));
}
inline Ints signed_start(int start) { return splat(start); }
inline Ints dot(Ints acc, Bytes w, int x4) { return _mm512_dpbusd_epi32(acc, w, splat(x4)); }
inline Ints dot_signed(Ints acc, SignedBytes w, int x4) { return dot(acc, w, x4); }

}  // namespace floorline::FLOORLINE_ISA
