// Runs prompts and decode steps of small models over made-up weights, and prints every logit: what
// one instruction set computes is held against another's, on another processor.
//
//   logits_driver                 names the fastest instruction set here
//   logits_driver ISA THREADS     a line a row: shape, weights, activations, KV, greatest, logits
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "driver_weights.h"

using namespace floorline;

namespace {

struct Shape {
  const char* name;
  int heads, kv_heads, head_dim, block_size;
  Gating gating;
  std::vector<int> windows;  // one a layer
  std::vector<Format> formats;
  std::vector<const char*> stores = {"fp32", "fp16", "int8"};
  bool spoilt = false;  // the last token's embedding has a NaN
};

// No size is a multiple of 16. Heads share a kv-head by three, or each has its own.
const Shape kShapes[] = {
    {"grouped", 3, 1, 20, 16, Gating::silu, {0, 0},
     {Format::fp32, Format::fp16, Format::int8, Format::int8_g32, Format::int4_g32}},
    {"single", 2, 2, 34, 10, Gating::gelu_tanh, {0, 150}, {Format::fp32}},
    {"file", 3, 1, 20, 16, Gating::silu, {0, 0},
     {Format::q4_0, Format::q5_0, Format::q5_1, Format::q4_k, Format::q5_k, Format::q6_k,
      Format::iq4_nl, Format::iq4_xs, Format::mxfp4},
     {"fp16"}},
    {"spoilt", 3, 1, 20, 16, Gating::silu, {0, 0}, {Format::int8_g32},
     {"fp32", "fp16", "int8"}, true},
};
constexpr int kVocab = 37, kHidden = 36, kInner = 52;

Model model_of(const Shape& shape, bool integer_activations) {
  Model m;
  m.vocab = kVocab;
  m.hidden = kHidden;
  m.inner = kInner;
  m.heads = shape.heads;
  m.kv_heads = shape.kv_heads;
  m.head_dim = shape.head_dim;
  m.norm_eps = 1e-5f;
  m.gating = shape.gating;
  m.integer_activations = integer_activations;
  m.layers.resize(shape.windows.size());
  return m;
}

// Numbers that are the same on every machine: none is rounded.
class Random {
 public:
  void operator()(uint8_t* data, const Tensor& t) {
    if (t.rows == 1) return numbers(data, t.columns, 2.f, 0x1p-12f);
    const size_t panel = panel_bytes(t.format, t.columns);
    for (const uint8_t* end = data + t.bytes; data < end; data += panel)
      fill_panel(data, t.format, t.columns);
  }

 private:
  int below(int limit) { return static_cast<int>(bits_() % limit); }
  template <class T>
  void put(uint8_t*& data, T value) {
    std::memcpy(data, &value, sizeof value);
    data += sizeof value;
  }
  void numbers(uint8_t*& data, int count, float centre, float step) {
    for (int i = 0; i < count; ++i)
      put(data, centre + static_cast<float>(below(4095) - 2047) * step);
  }
  void halves(uint8_t*& data, int count, int first, int span) {  // bit patterns
    for (int i = 0; i < count; ++i) put(data, static_cast<uint16_t>(first + below(span)));
  }
  void bytes(uint8_t*& data, int count) {
    for (int i = 0; i < count; ++i) put(data, static_cast<uint8_t>(below(256)));
  }
  void fill_panel(uint8_t* data, Format format, int columns) {
    const int groups = round_up(columns, kGroup) / kGroup;
    if (format == Format::fp32) return numbers(data, columns * kLanes, 0.f, 0x1p-14f);
    if (format == Format::fp16) {
      for (int i = 0; i < columns * kLanes; ++i) halves(data, 1, below(2) << 15, 0x3400);
      return;
    }
    if (is_coded(format)) return fill_coded(data, format, columns);
    if (format == Format::int8) numbers(data, kLanes, 0x1p-10f, 0x1p-22f);
    for (int g = 0; g < groups; ++g) {
      if (format == Format::int8_g32) halves(data, kLanes, 0x1400, 0x200);
      if (format == Format::int4_g32) {
        halves(data, kLanes, 0x2000, 0x400);
        halves(data, kLanes, 0xac00, 0x400);  // minima are negative
      }
      bytes(data, kGroup * kLanes / (format == Format::int4_g32 ? 2 : 1));
    }
  }

  // Any bytes are valid but those of factors, minima and exponents.
  void fill_coded(uint8_t* data, Format format, int columns) {
    const Coding c = coding(format);
    const int blocks = round_up(columns, c.columns) / c.columns;
    if (format == Format::q6_k) halves(data, blocks * kLanes, 0x0800, 0x400);
    if (format == Format::mxfp4)
      for (int i = 0; i < blocks * kLanes; ++i) put(data, static_cast<uint8_t>(118 + below(4)));
    for (int block = 0; block < blocks; ++block) {
      const uint8_t* end = data + c.header_bytes;
      const int first = c.columns == kGroup ? 0x1c00 : 0x0c00;  // the others have scales besides
      if (!c.factor_bytes) halves(data, kLanes * (c.minima ? 2 : 1), first, 0x400);
      bytes(data, static_cast<int>(end - data));
      bytes(data, c.columns / kGroup * coded_group_bytes(format));
    }
  }

  std::mt19937 bits_{1};
};

std::vector<float> spoilt_embedding() {
  std::vector<float> values(stored_bytes(Format::fp32, kVocab, kHidden) / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i % 29) - 14) / 128.f;
  constexpr int kToken = kVocab - 1, kColumn = 7;
  values[(kToken / kLanes * kHidden + kColumn) * kLanes + kToken % kLanes] = NAN;
  return values;
}

constexpr int kRequests = 8;
constexpr int kMaxPositions = 320;
constexpr int kMaxRows = 320;

struct Piece {
  int request, count;  // tokens that it appends
};

// A prompt in two chunks, the second beside seven others and over the end of a span of attention;
// then decode steps of 1, 3 and 8 rows, over the ends of blocks and of a partition.
const std::vector<Piece> kSteps[] = {
    {{0, 230}},
    {{0, 40}, {1, 15}, {2, 126}, {3, 1}, {4, 5}, {5, 31}, {6, 17}, {7, 29}},
    {{0, 1}},
    {{0, 1}, {1, 1}, {2, 1}},
    {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}},
};

class Requests {
 public:
  Requests(NativeModel& model, int block_size, int width)
      : model_(model), block_size_(block_size), width_(width) {}

  // Run one step. Returns: its logits [rows][kVocab] and the greatest of each row.
  std::pair<std::vector<float>, std::vector<int32_t>> step(const std::vector<Piece>& pieces) {
    std::vector<int32_t> tokens, positions, slots, tables, starts{0}, rows;
    for (const Piece& piece : pieces) {
      for (int i = 0; i < width_; ++i) tables.push_back(block(piece.request, i));
      for (int i = 0; i < piece.count; ++i) {
        const int position = computed_[piece.request]++;
        rows.push_back(static_cast<int>(rows.size()));
        tokens.push_back((piece.request * 31 + position * 17) % kVocab);
        positions.push_back(position);
        slots.push_back(block(piece.request, position / block_size_) * block_size_ +
                        position % block_size_);
      }
      starts.push_back(static_cast<int>(rows.size()));
    }
    const int count = static_cast<int>(rows.size()), slices = static_cast<int>(pieces.size());
    std::vector<float> logits(static_cast<size_t>(count) * kVocab);
    std::vector<int32_t> greatest(count);
    model_.step({count, slices, count, width_, tokens.data(), positions.data(), slots.data(),
                 tables.data(), starts.data(), rows.data(), logits.data(), greatest.data()});
    return {logits, greatest};
  }

 private:
  int block(int request, int index) const {  // out of order: no request's blocks are neighbours
    return (request * width_ + index) * 7919 % (kRequests * width_);
  }

  NativeModel& model_;
  const int block_size_, width_;
  int computed_[kRequests] = {};
};

void run(const Shape& shape, Format format, bool integer_activations, const char* kv,
         const std::string& isa, int threads) {
  const Model m = model_of(shape, integer_activations);
  const int width = (kMaxPositions + shape.block_size - 1) / shape.block_size;
  Options options;
  options.num_blocks = kRequests * width;
  options.block_size = shape.block_size;
  options.max_tokens = kMaxRows;
  options.max_positions = kMaxPositions;
  options.threads = threads;
  options.kv_format = kv_format_named(kv);
  options.windows = shape.windows;
  options.isa = isa;
  for (int i = 0; i < shape.head_dim / 2; ++i)
    options.inverse_frequencies.push_back(1.f / static_cast<float>(1 << i));
  Weights weights(m, format, Random());
  const std::vector<float> embedding = spoilt_embedding();
  if (shape.spoilt)
    weights.all["embed"] = {reinterpret_cast<const uint8_t*>(embedding.data()),
                            embedding.size() * sizeof(float), kVocab, kHidden, Format::fp32};
  NativeModel model(m, options, weights.all);
  Requests requests(model, shape.block_size, width);
  for (const std::vector<Piece>& pieces : kSteps) {
    const auto [logits, greatest] = requests.step(pieces);
    for (size_t row = 0; row < greatest.size(); ++row) {
      std::printf("%s %s %s %s %d", shape.name, kFormatNames[static_cast<int>(format)],
                  integer_activations ? "int8" : "fp32", kv, greatest[row]);
      for (int i = 0; i < kVocab; ++i) std::printf(" %.9g", logits[row * kVocab + i]);
      std::printf("\n");
    }
  }
}

void run_all(const std::string& isa, int threads) {
  for (const Shape& shape : kShapes)
    for (Format format : shape.formats)
      for (const char* kv : shape.stores) {
        run(shape, format, false, kv, isa, threads);
        if (is_integer(format)) run(shape, format, true, kv, isa, threads);
      }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 1) {
    std::printf("%s\n", find_isa("")->name);
    return 0;
  }
  if (count != 3) {
    std::fprintf(stderr, "usage: logits_driver [ISA THREADS]\n");
    return 2;
  }
  try {
    run_all(arguments[1], std::atoi(arguments[2]));
  } catch (const Unsupported& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
