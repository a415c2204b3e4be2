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
// holds k in its low half and k + 16 in its high half. Padding in k is multiplied with activations
// of zero; results of padded columns are not written to memory.
//
// `kernels/packing.py` writes these layouts. Its numbers are held against the ones below by
// tests/unit/kernels/test_layout.py.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace floorline {

constexpr int kLanes = 16;                  // columns of a panel, and lanes of every vector here
constexpr int kGroup = 32;                  // values of a column that share a scale
constexpr int kQuad = 4;                    // consecutive k in one 32-bit lane
constexpr int kQuadBytes = kQuad * kLanes;  // four k of all columns: one vector of bytes
constexpr int kByteZero = 128;              // the byte that stands for 0 in int8 and int8_g32
constexpr int kLineBytes = 64;              // of a cache line

enum class Format { fp32, fp16, int8, int8_g32, int4_g32 };
constexpr const char* kFormatNames[] = {"fp32", "fp16", "int8", "int8_g32", "int4_g32"};

constexpr bool is_integer(Format format) { return format >= Format::int8; }

constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Half {
  uint16_t bits;
};

// Of integer formats: a panel is its header and then its groups, a group its header and then its
// weights, [quads][16][4].
constexpr int panel_header_bytes(Format format) {
  return format == Format::int8 ? kLanes * static_cast<int>(sizeof(float)) : 0;
}
constexpr int group_header_bytes(Format format) {
  const int numbers = format == Format::int8 ? 0 : format == Format::int8_g32 ? 1 : 2;
  return numbers * kLanes * static_cast<int>(sizeof(Half));
}
constexpr int group_weight_bytes(Format format) {
  return kGroup * kLanes / (format == Format::int4_g32 ? 2 : 1);
}
constexpr int group_bytes(Format format) {
  return group_header_bytes(format) + group_weight_bytes(format);
}
// Where a group's weights have the byte of its k-th value in one column.
constexpr int byte_at(int k, int column) {
  return k / kQuad * kQuadBytes + column * kQuad + k % kQuad;
}

constexpr size_t panel_bytes(Format format, int columns) {
  const size_t k = columns, groups = round_up(columns, kGroup) / kGroup;
  switch (format) {
    case Format::fp32: return k * kLanes * sizeof(float);
    case Format::fp16: return k * kLanes * sizeof(Half);
    default: return panel_header_bytes(format) + groups * group_bytes(format);
  }
}

constexpr size_t stored_bytes(Format format, int rows, int columns) {
  return static_cast<size_t>(round_up(rows, kLanes) / kLanes) * panel_bytes(format, columns);
}

}  // namespace floorline
