// The vocabulary that kernels are written in: sixteen lanes with every instruction set.
// Compiled once for each, on top of its header FLOORLINE_SIMD, in a namespace FLOORLINE_ISA of its
// own, so that the linker never mixes code of two instruction sets.
#pragma once
#include "half.h"

#include FLOORLINE_SIMD

#define UNROLL _Pragma("GCC unroll 16")

namespace floorline::FLOORLINE_ISA {

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }
inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

// The first n lanes; the rest are 0. An instruction set with masks has overloads of its own.
template <class T>
inline Lanes load_part(const T* p, int n) {
  T whole[kLanes] = {};
  std::memcpy(whole, p, n * sizeof(T));
  return load(whole);
}
template <class T>
inline void store_part(T* p, Lanes x, int n) {
  if (n == kLanes) return store(p, x);
  T whole[kLanes];
  store(whole, x);
  std::memcpy(p, whole, n * sizeof(T));
}

// e^x to two units in the last place; 0 below the smallest normal number.
// Source: Cephes expf (S. Moshier), its range reduction and coefficients.
inline Lanes exponential(Lanes x) {
  constexpr float kLowest = -87.3f;
  // The constant comes first: if x is NaN, the result is the second operand.
  const Lanes bounded = minimum(splat(88.f), maximum(splat(kLowest), x));
  const Ints n = to_nearest(mul(bounded, splat(1.44269504088896341f)));
  const Lanes whole = to_float(n);
  Lanes r = fma(whole, splat(-0.693359375f), bounded);
  r = fma(whole, splat(2.12194440e-4f), r);
  Lanes p = splat(1.9875691500e-4f);
  for (float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = fma(p, r, splat(c));
  p = fma(p, mul(r, r), add(r, splat(1.f)));
  return zero_below(mul(p, power_of_two(n)), x, kLowest);
}

inline Lanes sigmoid_times(Lanes x, Lanes u) {  // x * sigmoid(u)
  return div(x, add(splat(1.f), exponential(sub(zeros(), u))));
}

inline Lanes silu(Lanes x) { return sigmoid_times(x, x); }

inline Lanes gelu_tanh(Lanes x) {  // 0.5 x (1 + tanh(v)) = x * sigmoid(2 v)
  const Lanes cubic = fma(mul(mul(x, x), splat(0.044715f)), x, x);
  return sigmoid_times(x, mul(cubic, splat(1.5957691216057308f)));
}

}  // namespace floorline::FLOORLINE_ISA
