// What a step works on: the model, its KV store, one batch and the scratch. Only values and
// pointers: native_model.h owns the memory and checks the values.
#pragma once
#include <vector>

#include "layout.h"

namespace floorline {

struct Matrix {
  const uint8_t* panels = nullptr;
  const float* bias = nullptr;  // [rows rounded up to 16], or none
  int rows = 0;                 // N, output features
  int columns = 0;              // K, input features
  Format format = Format::fp32;
  size_t pitch = 0;  // bytes from one panel to the next; of a pair, past the other's panel

  int num_panels() const { return round_up(rows, kLanes) / kLanes; }
};

struct Layer {
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  const float* q_norm = nullptr;  // with q/k norm only
  const float* k_norm = nullptr;
  Matrix q, k, v, o, gate, up, down;
  int window = 0;  // positions that a token sees, itself included; 0 is all
};

enum class Gating { silu, gelu_tanh };

struct Model {
  int vocab = 0, hidden = 0, inner = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float norm_eps = 0;
  Gating gating = Gating::silu;
  bool integer_activations = true;  // int8 for integer weights; otherwise fp32, the exact twin
  const float* inverse_frequencies = nullptr;  // [head_dim / 2]
  const float* final_norm = nullptr;
  Matrix embed, lm_head;
  std::vector<Layer> layers;

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  int qkv_stride() const { return round_up(q_width() + 2 * kv_width(), kGroup); }
  int widest() const {
    const int a = hidden > inner ? hidden : inner;
    return round_up(a > q_width() ? a : q_width(), kGroup);
  }
};

enum class KVFormat { fp32, fp16, int8 };
constexpr const char* kKVFormatNames[] = {"fp32", "fp16", "int8"};

// [layer][block][kv-head]: keys [head_dim][block_size], then values [block_size][head_dim]. int8
// has fp16 scales [2][block_size] after them, of keys and of values: one for each token and
// kv-head.
struct KVStore {
  uint8_t* data = nullptr;
  int num_blocks = 0, block_size = 0;
  KVFormat format = KVFormat::fp32;

  size_t head_bytes(const Model& m) const {
    const size_t element = format == KVFormat::fp32 ? 4 : format == KVFormat::fp16 ? 2 : 1;
    const size_t scale = format == KVFormat::int8 ? sizeof(Half) : 0;
    return 2 * block_size * (m.head_dim * element + scale);
  }
  template <class T>
  T* keys(const Model& m, int layer, int block, int head) const {
    const size_t index = (static_cast<size_t>(layer) * num_blocks + block) * m.kv_heads + head;
    return reinterpret_cast<T*>(data + index * head_bytes(m));
  }
  template <class T>
  T* values(const Model& m, int layer, int block, int head) const {
    return keys<T>(m, layer, block, head) + static_cast<size_t>(block_size) * m.head_dim;
  }
  Half* scales(const Model& m, int layer, int block, int head) const {  // of int8
    int8_t* values_end = values<int8_t>(m, layer, block, head) + block_size * m.head_dim;
    return reinterpret_cast<Half*>(values_end);
  }
};

// Invariant: NativeModel::step has checked it against the model and the KV store.
struct Batch {
  int num_tokens = 0, num_slices = 0, num_logits = 0, table_width = 0;
  const int32_t* tokens = nullptr;        // [T]
  const int32_t* positions = nullptr;     // [T], consecutive within a slice
  const int32_t* slots = nullptr;         // [T], block * block_size + offset
  const int32_t* block_tables = nullptr;  // [B, table_width]
  const int32_t* query_starts = nullptr;  // [B + 1]
  const int32_t* logit_rows = nullptr;    // [R], rows of T
  float* logits = nullptr;                // [R, V]
  int32_t* greatest = nullptr;            // [R], id of the greatest logit; -1 where not finite
};

// Rows of one matrix product's input, as values and, for integer arithmetic, quantised.
struct Activations {
  float* values = nullptr;  // [T][stride], zero from the width on
  int stride = 0;
  int8_t* bytes = nullptr;    // [T][byte_stride]
  float* scales = nullptr;    // [T][byte_stride / 32]
  int32_t* starts = nullptr;  // the same: -128 times the sum of a group's bytes
  int32_t* halves = nullptr;  // [T][byte_stride / 16]: the same of half a group; for q6_k
  float* offsets = nullptr;   // as scales: the sum of a group's bytes times its scale
  int byte_stride = 0;

  int group_stride() const { return byte_stride / kGroup; }
};

// A run of rows of one slice that attention handles together.
struct Tile {
  int slice, first_row, num_rows;
};

constexpr int kMaxHeadDim = 256;
constexpr int kQueries = 8;      // queries (rows x heads of a group) that share a pass over KV
constexpr int kPartition = 128;  // positions whose scores are looked at together
constexpr int kSpan = 2;         // partitions of a partial attention
constexpr int kSplitItems = 4;   // with at most so many items a thread, spans become items

// Where each member expands one coded panel at a time.
struct Room {
  uint8_t* data = nullptr;
  size_t pitch = 0;  // from one member's to the next
};

struct Scratch {
  float* residual = nullptr;  // [T][hidden]
  float* qkv = nullptr;       // [T][q, k, v]
  float* angles = nullptr;    // [T][cosines, sines]
  float* partials = nullptr;  // [items][spans][queries](largest, sum, acc[head_dim])
  int max_spans = 0, max_split_items = 0;
  Activations normed, attended, gated;
  Room room;
  std::vector<Tile> tiles;
  int residual_stride = 0;
};

}  // namespace floorline
