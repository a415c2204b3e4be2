// Sixteen lanes in plain C++: the fallback for every processor, and the twin of the fast ones.
#pragma once
#include <cmath>

#include "half.h"

namespace floorline::FLOORLINE_ISA {

template <class T>
struct Vector {
  T at[kLanes];
};
using Lanes = Vector<float>;
using Ints = Vector<int32_t>;
struct Bytes {
  uint8_t at[4 * kLanes];
};
using SignedBytes = Bytes;

constexpr int kChains = 1;
constexpr int kFloatRows = 4;
constexpr int kIntegerRows = 4;
constexpr int kCodedRows = 1;   // of a tile that unpacks codes
constexpr int kAccumulators = 4;

template <class F>
inline auto map(F f) -> Vector<decltype(f(0))> {
  Vector<decltype(f(0))> out;
  for (int i = 0; i < kLanes; ++i) out.at[i] = f(i);
  return out;
}

inline Lanes splat(float x) {
  return map([=](int) { return x; });
}
inline Ints splat(int x) {
  return map([=](int) { return x; });
}
inline Lanes zeros() { return splat(0.f); }
inline Lanes load(const float* p) {
  return map([=](int i) { return p[i]; });
}
inline Lanes load(const Half* p) {
  return map([=](int i) { return to_float(p[i]); });
}
inline Lanes load(const int8_t* p) {
  return map([=](int i) { return static_cast<float>(p[i]); });
}
inline void store(float* p, Lanes x) { std::memcpy(p, x.at, sizeof x.at); }
inline void store(Half* p, Lanes x) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(x.at[i]);
}
inline Lanes add(Lanes a, Lanes b) {
  return map([&](int i) { return a.at[i] + b.at[i]; });
}
inline Lanes sub(Lanes a, Lanes b) {
  return map([&](int i) { return a.at[i] - b.at[i]; });
}
inline Lanes mul(Lanes a, Lanes b) {
  return map([&](int i) { return a.at[i] * b.at[i]; });
}
inline Lanes div(Lanes a, Lanes b) {
  return map([&](int i) { return a.at[i] / b.at[i]; });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return map([&](int i) { return a.at[i] * b.at[i] + c.at[i]; });
}
inline Lanes maximum(Lanes a, Lanes b) {
  return map([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
}
inline Lanes minimum(Lanes a, Lanes b) {
  return map([&](int i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
}
inline Lanes absolute(Lanes a) {
  return map([&](int i) { return std::fabs(a.at[i]); });
}
inline Ints add(Ints a, Ints b) {
  return map([&](int i) { return a.at[i] + b.at[i]; });
}
template <class T>
inline T sum(Vector<T> a) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.at[i] += a.at[i + half];
  return a.at[0];
}
inline float largest(Lanes a) {
  float best = a.at[0];
  for (int i = 1; i < kLanes; ++i) best = a.at[i] > best ? a.at[i] : best;
  return best;
}
inline Lanes to_float(Ints a) {
  return map([&](int i) { return static_cast<float>(a.at[i]); });
}
inline Ints to_nearest(Lanes a) {  // NaN gives 0: what scales it is NaN already
  return map([&](int i) {
    return std::fabs(a.at[i]) < 1e9f ? static_cast<int32_t>(std::nearbyintf(a.at[i])) : 0;
  });
}
inline Lanes power_of_two(Ints n) {
  return map([&](int i) {
    const uint32_t bits = static_cast<uint32_t>(n.at[i] + 127) << 23;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  });
}
inline Lanes zero_below(Lanes y, Lanes x, float limit) {
  return map([&](int i) { return x.at[i] < limit ? 0.f : y.at[i]; });
}
inline void store_bytes(int8_t* p, Ints x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x.at[i]);
}

inline Bytes load_bytes(const uint8_t* p) {
  Bytes b;
  std::memcpy(b.at, p, sizeof b.at);
  return b;
}
inline Bytes low_nibbles(Bytes b) {
  for (uint8_t& byte : b.at) byte &= 15;
  return b;
}
inline Bytes high_nibbles(Bytes b) {
  for (uint8_t& byte : b.at) byte >>= 4;
  return b;
}
// low, with the bits of `high` that `Mask` keeps once they are moved `Left` (or right) in each byte.
template <int Left, int Mask>
inline Bytes with_bits(Bytes low, const Bytes& high) {
  constexpr int kLeft = Left < 0 ? 0 : Left, kRight = Left < 0 ? -Left : 0;
  for (int i = 0; i < 4 * kLanes; ++i)
    low.at[i] = static_cast<uint8_t>(low.at[i] | (high.at[i] << kLeft >> kRight & Mask));
  return low;
}
inline Bytes look_up(const uint8_t* table, Bytes codes) {  // 16 entries
  for (uint8_t& byte : codes.at) byte = table[byte];
  return codes;
}
inline void store(uint8_t* p, const Bytes& b) { std::memcpy(p, b.at, sizeof b.at); }
inline Ints load_words(const uint8_t* p) {  // 16 of 32 bits
  Ints x;
  std::memcpy(x.at, p, sizeof x.at);
  return x;
}
inline Ints load_halves(const uint8_t* p) {  // 16 of 16 bits
  return map([=](int i) { return static_cast<int32_t>(p[2 * i] | p[2 * i + 1] << 8); });
}
inline Ints load_small(const uint8_t* p) {  // 16 of 8 bits
  return map([=](int i) { return static_cast<int32_t>(p[i]); });
}
// The bits that `Mask` keeps once they are moved `Right` (or left) in each lane.
template <int Right, int Mask>
inline Ints field(Ints x) {
  constexpr int kRight = Right < 0 ? 0 : Right, kLeft = Right < 0 ? -Right : 0;
  return map([&](int i) {
    return static_cast<int32_t>(static_cast<uint32_t>(x.at[i]) >> kRight << kLeft & Mask);
  });
}
inline Ints either(Ints a, Ints b) {
  return map([&](int i) { return a.at[i] | b.at[i]; });
}
inline SignedBytes as_signed(Bytes b) { return b; }
template <int J>
inline Lanes byte_lane(Bytes b) {
  return map([&](int i) { return static_cast<float>(b.at[4 * i + J]); });
}
inline Ints signed_start(int start) { return splat(start); }
inline Ints dot(Ints acc, const Bytes& w, int x4) {
  int8_t x[4];
  std::memcpy(x, &x4, 4);
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < 4; ++j) acc.at[i] += w.at[4 * i + j] * x[j];
  return acc;
}
inline Ints dot_signed(Ints acc, const SignedBytes& w, int x4) { return dot(acc, w, x4); }

}  // namespace floorline::FLOORLINE_ISA
