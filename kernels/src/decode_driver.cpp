// Runs decode steps of a model of tinygpt's sizes and nothing else: a cache simulator counts them.
//
//   decode_driver FORMAT KV CONTEXT BATCH STEPS ISA      (formats as in layout.h; kv fp32, fp16 or int8)
//
// Prints the bytes of weights and of KV that it allocated. Weights are a constant: only their
// place in memory matters here.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "native_model.h"

using namespace floorline;

namespace {

constexpr int kBlockSize = 16;

Model tinygpt() {
  Model m;
  m.vocab = 260;
  m.hidden = 256;
  m.inner = 1024;
  m.heads = 4;
  m.kv_heads = 1;
  m.head_dim = 64;
  m.norm_eps = 1e-5f;
  m.layers.resize(6);
  return m;
}

class Weights {
 public:
  void matrix(const std::string& name, Format format, int rows, int columns) {
    add(name, {nullptr, stored_bytes(format, rows, columns), rows, columns, format});
  }
  void vector(const std::string& name, int width) {
    add(name, {nullptr, width * sizeof(float), 1, width, Format::fp32});
  }
  std::map<std::string, Tensor> all;

 private:
  void add(const std::string& name, Tensor tensor) {
    memory_.emplace_back(tensor.bytes, uint8_t{0x11});
    tensor.data = memory_.back().data();
    all[name] = tensor;
  }
  std::vector<std::vector<uint8_t>> memory_;
};

Weights weights_of(const Model& m, Format format) {
  Weights w;
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    w.vector(prefix + "input_norm", m.hidden);
    w.vector(prefix + "post_norm", m.hidden);
    w.matrix(prefix + "q_proj", format, m.q_width(), m.hidden);
    w.matrix(prefix + "k_proj", format, m.kv_width(), m.hidden);
    w.matrix(prefix + "v_proj", format, m.kv_width(), m.hidden);
    w.matrix(prefix + "o_proj", format, m.hidden, m.q_width());
    w.matrix(prefix + "gate_proj", format, m.inner, m.hidden);
    w.matrix(prefix + "up_proj", format, m.inner, m.hidden);
    w.matrix(prefix + "down_proj", format, m.hidden, m.inner);
  }
  w.vector("final_norm", m.hidden);
  w.matrix("embed", format, m.vocab, m.hidden);
  w.matrix("lm_head", format, m.vocab, m.hidden);
  return w;
}

void decode(NativeModel& model, int context, int batch, int steps) {
  const int width = (context + steps + kBlockSize - 1) / kBlockSize;
  std::vector<int32_t> tokens(batch), positions(batch), slots(batch), starts(batch + 1),
      rows(batch);
  std::vector<int32_t> tables(static_cast<size_t>(batch) * width);
  std::vector<int32_t> greatest(batch);
  std::vector<float> logits(static_cast<size_t>(batch) * model.model().vocab);
  std::iota(starts.begin(), starts.end(), 0);
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(tables.begin(), tables.end(), 0);
  for (int step = 0; step < steps; ++step) {
    const int position = context + step;
    for (int b = 0; b < batch; ++b) {
      tokens[b] = b;
      positions[b] = position;
      slots[b] = tables[b * width + position / kBlockSize] * kBlockSize + position % kBlockSize;
    }
    model.step({batch, batch, batch, width, tokens.data(), positions.data(), slots.data(),
                tables.data(), starts.data(), rows.data(), logits.data(),
                greatest.data()});
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) {
    std::fprintf(stderr, "usage: decode_driver FORMAT KV CONTEXT BATCH STEPS ISA\n");
    return 2;
  }
  const int context = std::atoi(arguments[3]), batch = std::atoi(arguments[4]);
  const int steps = std::atoi(arguments[5]);
  Options options;
  options.kv_format = kv_format_named(arguments[2]);
  options.num_blocks = batch * ((context + 64 + kBlockSize - 1) / kBlockSize);
  options.block_size = kBlockSize;
  options.max_tokens = batch;
  options.max_positions = context + 64;
  options.isa = arguments[6];
  options.windows.assign(6, 0);
  options.inverse_frequencies.assign(32, 0.5f);
  const Format format = format_named(arguments[1]);
  NativeModel model(tinygpt(), options, weights_of(tinygpt(), format).all);
  decode(model, context, batch, steps);
  std::printf("%zu %zu\n", model.weight_bytes(), model.kv_bytes());
  return 0;
}
