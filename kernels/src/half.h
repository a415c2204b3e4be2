// One 16-bit float to fp32 and back, by arithmetic on its bits.
#pragma once
#include "layout.h"

namespace floorline::FLOORLINE_ISA {

inline float to_float(Half half) {
  const uint32_t sign = (half.bits & 0x8000u) << 16, magnitude = half.bits & 0x7fffu;
  uint32_t bits = (magnitude << 13) + (112u << 23);
  if (magnitude >= 0x7c00u) bits += 112u << 23;  // infinities and NaN
  float value;
  if (magnitude < 0x0400u) {
    value = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&bits, &value, 4);
  }
  bits |= sign;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Round to nearest even, by letting a float addition do the rounding.
inline Half to_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (bits >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (bits < 0x38800000u) {
    float shifted;
    std::memcpy(&shifted, &bits, 4);
    shifted += 0.5f;
    std::memcpy(&bits, &shifted, 4);
    return {static_cast<uint16_t>(sign | (bits - 0x3f000000u))};
  }
  return {
      static_cast<uint16_t>(sign | ((bits - (112u << 23) + 0xfffu + ((bits >> 13) & 1)) >> 13))};
}

}  // namespace floorline::FLOORLINE_ISA
