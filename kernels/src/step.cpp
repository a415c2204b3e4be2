// One step of the model, from token ids to logits. Compiled once for each instruction set.
#include "attention.h"
#include "isa.h"
#include "phases.h"
#include "rows.h"

namespace floorline::FLOORLINE_ISA {
namespace {

template <class T>
class Step {
 public:
  Step(const Model& model, const KVStore& kv, const Batch& batch, Scratch& scratch, Team& team)
      : m(model), kv(kv), b(batch), s(scratch), team(team) {}

  void run() {
    share(team, b.num_tokens, 1, [&](int row) { embed(row); });
    for (int i = 0; i < static_cast<int>(m.layers.size()); ++i) {
      attention_block(m.layers[i], i);
      mlp_block(m.layers[i]);
    }
    head();
  }

 private:
  bool integer(const Matrix& matrix) const {
    return m.integer_activations && is_integer(matrix.format);
  }
  Product product(const Matrix& matrix, const Activations& x, float* out, size_t stride,
                  Into into) const {
    return {&matrix, tiles_for(matrix.format, m.integer_activations), &x, out, stride, into};
  }
  float* residual(int row) const {
    return s.residual + static_cast<size_t>(row) * s.residual_stride;
  }
  float* qkv(int row) const { return s.qkv + static_cast<size_t>(row) * m.qkv_stride(); }
  float* angles(int row) const { return s.angles + static_cast<size_t>(row) * m.head_dim; }

  void embed(int row) {
    unpack_row(m.embed, b.tokens[row], residual(row));
    rotary_angles(m, b.positions[row], angles(row));
  }

  void normalise(const float* x, const float* weight, int row, bool quantised) {
    rms_norm(x, weight, m.hidden, m.norm_eps,
             s.normed.values + static_cast<size_t>(row) * s.normed.stride);
    if (quantised) quantise(s.normed, row);
  }

  void quantise_rows(const Activations& a, const Matrix& reader) {
    if (integer(reader)) share(team, b.num_tokens, 1, [&](int row) { quantise(a, row); });
  }

  void attention_block(const Layer& layer, int index) {
    const bool quantised = integer(layer.q) || integer(layer.k) || integer(layer.v);
    share(team, b.num_tokens, 1,
          [&](int row) { normalise(residual(row), layer.input_norm, row, quantised); });
    const size_t stride = m.qkv_stride();
    float *q = s.qkv, *k = q + m.q_width(), *v = k + m.kv_width();
    multiply(team,
             {product(layer.q, s.normed, q, stride, Into::store),
              product(layer.k, s.normed, k, stride, Into::store),
              product(layer.v, s.normed, v, stride, Into::store)},
             b.num_tokens);
    share(team, b.num_tokens, 1,
          [&](int row) { place_row<T>(m, layer, index, kv, b.slots[row], angles(row), qkv(row)); });
    attend_all(layer, index);
    quantise_rows(s.attended, layer.o);
    multiply(team, {product(layer.o, s.attended, s.residual, s.residual_stride, Into::add)},
             b.num_tokens);
  }

  void mlp_block(const Layer& layer) {
    const bool quantised = integer(layer.gate) || integer(layer.up);
    share(team, b.num_tokens, 1,
          [&](int row) { normalise(residual(row), layer.post_norm, row, quantised); });
    multiply_gated(team, product(layer.gate, s.normed, s.gated.values, s.gated.stride, Into::store),
                   product(layer.up, s.normed, s.gated.values, s.gated.stride, Into::gate),
                   b.num_tokens, m.gating);
    quantise_rows(s.gated, layer.down);
    multiply(team, {product(layer.down, s.gated, s.residual, s.residual_stride, Into::add)},
             b.num_tokens);
  }

  void head() {
    if (b.num_logits == 0) return;
    share(team, b.num_logits, 1, [&](int i) {
      normalise(residual(b.logit_rows[i]), m.final_norm, i, integer(m.lm_head));
    });
    multiply(team, {product(m.lm_head, s.normed, b.logits, m.vocab, Into::store)}, b.num_logits);
  }

  int group() const { return m.heads / m.kv_heads; }
  int group_parts() const { return (group() + kQueries - 1) / kQueries; }

  // Item: a tile, a kv-head, and a part of its group of heads where the group is large.
  QueryGroup queries(const Layer& layer, int index, int item) const {
    const int part = item % group_parts(), rest = item / group_parts();
    const Tile& tile = s.tiles[rest / m.kv_heads];
    QueryGroup g;
    g.head_dim = m.head_dim;
    g.table = b.block_tables + static_cast<size_t>(tile.slice) * b.table_width;
    g.layer = index;
    g.kv_head = rest % m.kv_heads;
    const int head0 = part * kQueries, head1 = smaller(group(), head0 + kQueries);
    g.count = tile.num_rows * (head1 - head0);
    int i = 0;
    for (int row = tile.first_row; row < tile.first_row + tile.num_rows; ++row)
      for (int h = head0; h < head1; ++h, ++i) {
        const int position = b.positions[row], offset = (g.kv_head * group() + h) * m.head_dim;
        g.last[i] = position;
        g.first[i] = layer.window > 0 ? larger(0, position - layer.window + 1) : 0;
        g.out[i] = s.attended.values + static_cast<size_t>(row) * s.attended.stride + offset;
        const float* q = qkv(row) + offset;
        for (int d = 0; d < m.head_dim; ++d) g.values[d * g.count + i] = q[d];
      }
    return g;
  }

  void attend_all(const Layer& layer, int index) {
    const int items = static_cast<int>(s.tiles.size()) * m.kv_heads * group_parts();
    int partitions = 1;
    for (const Tile& tile : s.tiles)
      partitions =
          larger(partitions, b.positions[tile.first_row + tile.num_rows - 1] / kPartition + 1);
    if (items <= s.max_split_items && partitions > 1)
      return attend_split(layer, index, items, partitions);
    share(team, items, 1, [&](int item) {
      const QueryGroup g = queries(layer, index, item);
      alignas(64) float seen_memory[kQueries * (2 + kMaxHeadDim)],
          next_memory[kQueries * (2 + kMaxHeadDim)];
      const Softmax seen(seen_memory), next(next_memory);
      begin_softmax(g, seen);
      for (int p = g.lowest() / kPartition; p <= g.highest() / kPartition; ++p) {
        attend<T>(m, kv, g, p, next);
        merge(g, seen, next);
      }
      finish_softmax(g, seen);
    });
  }

  void attend_split(const Layer& layer, int index, int items, int partitions) {
    const size_t floats = Softmax::floats(m.head_dim);
    auto partial = [&](int item, int partition) {
      return Softmax(s.partials +
                     (static_cast<size_t>(item) * s.max_partitions + partition) * floats);
    };
    const int total = items * partitions, chunk = larger(1, total / (8 * team.size()));
    for (int first = team.take(chunk); first < total; first = team.take(chunk)) {
      QueryGroup g;
      for (int i = first; i < smaller(first + chunk, total); ++i) {
        const int item = i / partitions, partition = i % partitions;
        if (i == first || partition == 0) g = queries(layer, index, item);
        attend<T>(m, kv, g, partition, partial(item, partition));
      }
    }
    team.barrier();
    share(team, items, 1, [&](int item) {
      const QueryGroup g = queries(layer, index, item);
      alignas(64) float memory[kQueries * (2 + kMaxHeadDim)];
      const Softmax seen(memory);
      begin_softmax(g, seen);
      for (int p = 0; p < partitions; ++p) merge(g, seen, partial(item, p));
      finish_softmax(g, seen);
    });
  }

  const Model& m;
  const KVStore& kv;
  const Batch& b;
  Scratch& s;
  Team& team;
};

void step(const Model& m, const KVStore& kv, const Batch& b, Scratch& s, Team& team) {
  auto run = [&]<class T>(T) { team.run([&](int) { Step<T>(m, kv, b, s, team).run(); }); };
  switch (kv.format) {
    case KVFormat::fp32: return run(float{});
    case KVFormat::fp16: return run(Half{});
    case KVFormat::int8: return run(int8_t{});
  }
}

void product(const Matrix& matrix, const Activations& x, int rows, bool integer_activations,
             float* out, Team& team) {
  const bool quantised = integer_activations && is_integer(matrix.format);
  const TileSet tiles = tiles_for(matrix.format, integer_activations);
  team.run([&](int) {
    if (quantised) share(team, rows, 1, [&](int row) { quantise(x, row); });
    multiply(team, {{&matrix, tiles, &x, out, static_cast<size_t>(matrix.rows), Into::store}},
             rows);
  });
}

uint64_t read(const uint8_t* data, size_t bytes, Team& team) {
  std::atomic<uint64_t> all{0};
  const int chunks = static_cast<int>((bytes + kChunkBytes - 1) / kChunkBytes);
  team.run([&](int) {
    Lanes sums[4] = {zeros(), zeros(), zeros(), zeros()};
    share(team, chunks, 1, [&](int chunk) {
      const size_t begin = static_cast<size_t>(chunk) * kChunkBytes;
      const size_t end = begin + kChunkBytes < bytes ? begin + kChunkBytes : bytes;
      for (size_t i = begin; i + 256 <= end; i += 256) UNROLL
        for (int j = 0; j < 4; ++j) {
          prefetch(data + i + j * 64 + kAhead);
          sums[j] = add(sums[j], load(reinterpret_cast<const float*>(data + i + j * 64)));
        }
    });
    float x = sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    all += bits;
  });
  return all;
}

}  // namespace

extern const Isa kIsa;
const Isa kIsa = {FLOORLINE_ISA_NAME, step, product, read};

}  // namespace floorline::FLOORLINE_ISA
