// Sixteen lanes in four NEON registers; byte products by SDOT where the compiler may use it.
#pragma once
#include <arm_neon.h>

#include "layout.h"

namespace floorline::FLOORLINE_ISA {

template <class T>
struct Four {
  T at[4];
};
using Lanes = Four<float32x4_t>;
using Ints = Four<int32x4_t>;
using Bytes = Four<uint8x16_t>;       // 16 lanes of 4 unsigned bytes
using SignedBytes = Four<int8x16_t>;  // the same minus 128

constexpr int kChains = 1;
constexpr int kFloatRows = 6;
constexpr int kIntegerRows = 4;
constexpr int kCodedRows = 4;   // of a tile that unpacks codes
constexpr int kAccumulators = 6;

template <class F>
inline auto map(F f) -> Four<decltype(f(0))> {
  return {{f(0), f(1), f(2), f(3)}};
}

inline Lanes splat(float x) {
  return map([=](int) { return vdupq_n_f32(x); });
}
inline Ints splat(int x) {
  return map([=](int) { return vdupq_n_s32(x); });
}
inline Lanes zeros() { return splat(0.f); }
inline Lanes to_float(Ints a) {
  return map([&](int i) { return vcvtq_f32_s32(a.at[i]); });
}
inline Lanes load(const float* p) {
  return map([=](int i) { return vld1q_f32(p + 4 * i); });
}
inline Lanes load(const Half* p) {
  return map([=](int i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p[4 * i].bits)));
  });
}
inline Lanes load(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return to_float({{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                    vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}});
}
inline void store(float* p, Lanes x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.at[i]);
}
inline void store(Half* p, Lanes x) {
  for (int i = 0; i < 4; ++i)
    vst1_u16(&p[4 * i].bits, vreinterpret_u16_f16(vcvt_f16_f32(x.at[i])));
}
inline Lanes add(Lanes a, Lanes b) {
  return map([&](int i) { return vaddq_f32(a.at[i], b.at[i]); });
}
inline Lanes sub(Lanes a, Lanes b) {
  return map([&](int i) { return vsubq_f32(a.at[i], b.at[i]); });
}
inline Lanes mul(Lanes a, Lanes b) {
  return map([&](int i) { return vmulq_f32(a.at[i], b.at[i]); });
}
inline Lanes div(Lanes a, Lanes b) {
  return map([&](int i) { return vdivq_f32(a.at[i], b.at[i]); });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return map([&](int i) { return vfmaq_f32(c.at[i], a.at[i], b.at[i]); });
}
inline Lanes maximum(Lanes a, Lanes b) {  // NaN where either is
  return map([&](int i) { return vmaxq_f32(a.at[i], b.at[i]); });
}
inline Lanes minimum(Lanes a, Lanes b) {
  return map([&](int i) { return vminq_f32(a.at[i], b.at[i]); });
}
inline Lanes absolute(Lanes a) {
  return map([&](int i) { return vabsq_f32(a.at[i]); });
}
inline float sum(Lanes a) {
  return vaddvq_f32(vaddq_f32(vaddq_f32(a.at[0], a.at[1]), vaddq_f32(a.at[2], a.at[3])));
}
inline float largest(Lanes a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.at[0], a.at[1]), vmaxq_f32(a.at[2], a.at[3])));
}
inline Ints to_nearest(Lanes a) {  // NaN gives 0: what scales it is NaN already
  return map([&](int i) { return vcvtnq_s32_f32(a.at[i]); });
}
inline Lanes power_of_two(Ints n) {
  return map([&](int i) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.at[i], vdupq_n_s32(127)), 23));
  });
}
inline Lanes zero_below(Lanes y, Lanes x, float limit) {
  return map([&](int i) {
    const uint32x4_t below = vcltq_f32(x.at[i], vdupq_n_f32(limit));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y.at[i]), below));
  });
}
inline Ints add(Ints a, Ints b) {
  return map([&](int i) { return vaddq_s32(a.at[i], b.at[i]); });
}
inline int sum(Ints a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.at[0], a.at[1]), vaddq_s32(a.at[2], a.at[3])));
}
inline void store_bytes(int8_t* p, Ints x) {
  const int16x8_t low = vqmovn_high_s32(vqmovn_s32(x.at[0]), x.at[1]);
  const int16x8_t high = vqmovn_high_s32(vqmovn_s32(x.at[2]), x.at[3]);
  vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(low), high));
}

inline Bytes load_bytes(const uint8_t* p) {
  return map([=](int i) { return vld1q_u8(p + 16 * i); });
}
inline Bytes low_nibbles(Bytes b) {
  return map([&](int i) { return vandq_u8(b.at[i], vdupq_n_u8(15)); });
}
inline Bytes high_nibbles(Bytes b) {
  return map([&](int i) { return vshrq_n_u8(b.at[i], 4); });
}
// low, with the bits of `high` that `Mask` keeps once they are moved `Left` (or right) in each byte.
template <int Left, int Mask>
inline Bytes with_bits(Bytes low, Bytes high) {
  return map([&](int i) {
    const uint8x16_t moved = vshlq_u8(high.at[i], vdupq_n_s8(Left));
    return vorrq_u8(low.at[i], vandq_u8(moved, vdupq_n_u8(Mask)));
  });
}
inline Bytes look_up(const uint8_t* table, Bytes codes) {  // 16 entries
  return map([&](int i) { return vqtbl1q_u8(vld1q_u8(table), codes.at[i]); });
}
inline void store(uint8_t* p, Bytes b) {
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, b.at[i]);
}
inline Ints load_words(const uint8_t* p) {  // 16 of 32 bits
  return map([=](int i) { return vreinterpretq_s32_u8(vld1q_u8(p + 16 * i)); });
}
inline Ints load_halves(const uint8_t* p) {  // 16 of 16 bits
  return map([=](int i) {
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i))));
  });
}
inline Ints load_small(const uint8_t* p) {  // 16 of 8 bits
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
           vreinterpretq_s32_u32(vmovl_high_u16(low)),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
           vreinterpretq_s32_u32(vmovl_high_u16(high))}};
}
// The bits that `Mask` keeps once they are moved `Right` (or left) in each lane.
template <int Right, int Mask>
inline Ints field(Ints x) {
  return map([&](int i) {
    const uint32x4_t moved = vshlq_u32(vreinterpretq_u32_s32(x.at[i]), vdupq_n_s32(-Right));
    return vreinterpretq_s32_u32(vandq_u32(moved, vdupq_n_u32(Mask)));
  });
}
inline Ints either(Ints a, Ints b) {
  return map([&](int i) { return vorrq_s32(a.at[i], b.at[i]); });
}
inline SignedBytes as_signed(Bytes b) {
  return map([&](int i) { return vreinterpretq_s8_u8(veorq_u8(b.at[i], vdupq_n_u8(128))); });
}
template <int J>
inline Lanes byte_lane(Bytes b) {
  return map([&](int i) {
    const uint32x4_t top = vshlq_n_u32(vreinterpretq_u32_u8(b.at[i]), 24 - 8 * J);
    return vcvtq_f32_u32(vshrq_n_u32(top, 24));
  });
}
inline int32x4_t dot(int32x4_t acc, int8x16_t w, int8x16_t x) {
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(acc, w, x);
#else  // two products have room in 16 bits: activations are never -128
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
  return vpadalq_s16(acc, vpaddq_s16(low, high));
#endif
}
inline Ints signed_start(int) { return splat(0); }
inline Ints dot_signed(Ints acc, SignedBytes w, int x4) {
  const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(x4));
  return map([&](int i) { return dot(acc.at[i], w.at[i], x); });
}
inline Ints dot(Ints acc, Bytes w, int x4) {
  return dot_signed(acc, map([&](int i) { return vreinterpretq_s8_u8(w.at[i]); }), x4);
}

}  // namespace floorline::FLOORLINE_ISA
