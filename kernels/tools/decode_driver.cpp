// Runs decode steps of a model of tinygpt's sizes and nothing else: a cache simulator counts them.
//
//   decode_driver FORMAT KV CONTEXT BATCH STEPS ISA      (formats as in layout.h; kv fp32, fp16 or int8)
//
// Prints the bytes of weights and of KV that it allocated. Weights are a constant: only their
// place in memory matters here.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "driver_weights.h"

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
  auto constant = [](uint8_t* data, const Tensor& t) { std::memset(data, 0x11, t.bytes); };
  const Weights weights(tinygpt(), format_named(arguments[1]), constant);
  NativeModel model(tinygpt(), options, weights.all);
  decode(model, context, batch, steps);
  std::printf("%zu %zu\n", model.weight_bytes(), model.kv_bytes());
  return 0;
}
