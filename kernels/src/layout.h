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
//   q4_0 … mxfp4 GGUF's other blocks, each panel exactly as large as the file's: see Coding below
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

struct Half {
  uint16_t bits;
};

// clang-format off
enum class Format { fp32, fp16, int8, int8_g32, int4_g32,
                    q4_0, q5_0, q5_1, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4 };
constexpr const char* kFormatNames[] = {
    "fp32", "fp16", "int8", "int8_g32", "int4_g32",
    "q4_0", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"};
// clang-format on

constexpr bool is_integer(Format format) { return format >= Format::int8; }
constexpr bool is_coded(Format format) { return format >= Format::q4_0; }

constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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

// A coded panel is, for q6_k and mxfp4, the 16 factors of each block; then its blocks, which lie in
// whole cache lines so. A block is its header and then its groups; a group is [4][16][4] bytes of low halves, as in int4_g32, then lines
// of high bits. Of five-bit codes there is one line: bit t of a byte belongs to quad t. Of six-bit
// codes there are two: bits 2 t and 2 t + 1 of a byte of line j belong to quad 4 j + t. Headers:
//
//   q4_0, q5_0, iq4_nl   16 fp16 factors             weight = factor (code - zero)
//   q5_1                 and 16 fp16 minima          weight = factor code + minimum
//   q4_k, q5_k           16 fp16 factors, 16 fp16 factors of minima; then [3][16] 32-bit words,
//                        four bits a group: low bits of scales; of minima; two high bits of each
//                                                    weight = factor scale code - factor' minimum
//   q6_k                 [16][16] int8 scales, each of 16 k; a factor is fp16
//                                                    weight = factor scale (code - zero)
//   iq4_xs               16 fp16 factors, [16] words of four low bits a group, [16] half words of
//                        two high bits               weight = factor (scale - 32) (code - zero)
//   mxfp4                none; a factor is a byte    weight = 2^(factor - 128) (code - zero)
//
// The codes of iq4_nl, iq4_xs and mxfp4 are looked up in a table first.
struct Coding {
  int factor_bytes;  // that a panel begins with, for each block
  int columns;       // of a block
  int header_bytes;  // of a block
  int high_lines;    // of a group
  int zero;          // the code that stands for 0
  bool minima;
  int scales;  // of a group: one, or one for each half of it
};

constexpr Coding coding(Format format) {
  switch (format) {
    case Format::q4_0: return {0, 32, 32, 0, 8, false, 1};
    case Format::q5_0: return {0, 32, 32, 1, 16, false, 1};
    case Format::q5_1: return {0, 32, 64, 1, 0, true, 1};
    case Format::q4_k: return {0, 256, 256, 0, 0, true, 1};
    case Format::q5_k: return {0, 256, 256, 1, 0, true, 1};
    case Format::q6_k: return {32, 256, 256, 2, 32, false, 2};
    case Format::iq4_nl: return {0, 32, 32, 0, 128, false, 1};
    case Format::iq4_xs: return {0, 256, 128, 0, 128, false, 1};
    case Format::mxfp4: return {16, 32, 0, 0, 12, false, 1};
    default: return {};
  }
}

template <Format F>
constexpr Coding kCoding = coding(F);

constexpr int kMaxBlock = 256;     // columns
constexpr int kNibbleBytes = 256;  // of a group
constexpr int coded_group_bytes(Format format) {
  return kNibbleBytes + coding(format).high_lines * kLineBytes;
}
constexpr size_t coded_panel_bytes(Format format, int columns) {
  const Coding c = coding(format);
  const size_t blocks = round_up(columns, c.columns) / c.columns;
  return blocks * (c.factor_bytes + c.header_bytes + c.columns / kGroup * coded_group_bytes(format));
}

// Room in which one panel lies expanded: as bytes for integer activations, else as fp32.
constexpr size_t expanded_bytes(int columns) {
  return static_cast<size_t>(round_up(columns, kMaxBlock)) * kLanes * sizeof(float);
}

constexpr size_t panel_bytes(Format format, int columns) {
  if (is_coded(format)) return coded_panel_bytes(format, columns);
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
