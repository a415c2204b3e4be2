// How weights lie in memory. Knows no instruction set and no model.
//
// A matrix [N, K] is stored as ceil(N / 16) panels of 16 output columns, one after the other, so
// that a thread reads one sequential stream. Inside a panel, by format (G = ceil(K / 32) groups):
//
//   fp32, fp16   [K][16] values
//   int8         16 fp32 scales, then G x [8][16][4] bytes (value + 128)      one scale a column
//   int8_g32     G x (16 fp16 scales, [8][16][4] bytes (value + 128))         GGUF Q8_0, lossless
//   int4_g32     G x (16 fp16 scales, 16 fp16 minima, [4][16][4] bytes)       GGUF Q4_0 and Q4_1
//
// Four consecutive k lie in one 32-bit lane, as byte dot products want them. A byte of int4_g32
// holds k in its low half and k + 16 in its high half. Padding in k meets activations of zero,
// padding in columns is never stored.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace floorline {

constexpr int kLanes = 16;  // columns of a panel, and lanes of every vector here
constexpr int kGroup = 32;  // values that share a scale

enum class Format { fp32, fp16, int8, int8_g32, int4_g32 };
constexpr int kFormats = 5;

constexpr const char* kFormatNames[kFormats] = {"fp32", "fp16", "int8", "int8_g32", "int4_g32"};

constexpr bool is_integer(Format format) { return format >= Format::int8; }

constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr size_t panel_bytes(Format format, int columns) {
  const size_t k = columns, groups = round_up(columns, kGroup) / kGroup;
  switch (format) {
    case Format::fp32: return k * kLanes * 4;
    case Format::fp16: return k * kLanes * 2;
    case Format::int8: return kLanes * 4 + groups * kGroup * kLanes;
    case Format::int8_g32: return groups * (kLanes * 2 + kGroup * kLanes);
    default: return groups * (kLanes * 4 + kGroup * kLanes / 2);
  }
}

constexpr size_t stored_bytes(Format format, int rows, int columns) {
  return static_cast<size_t>(round_up(rows, kLanes) / kLanes) * panel_bytes(format, columns);
}

struct Half {
  uint16_t bits;
};

}  // namespace floorline
