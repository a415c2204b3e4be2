// One step of the model, from token ids to logits. Compiled once for each instruction set.
// Begin at Step::run; docs/kernels.md is the guide.
#include "attention.h"
#include "isa.h"
#include "phases.h"
#include "rows.h"

#include <time.h>

namespace floorline::FLOORLINE_ISA {
namespace {

template <class T>
class Step {
 public:
  Step(const Model& model, const KVStore& kv, const Batch& batch, Scratch& scratch, Member& member)
      : m(model), kv(kv), b(batch), s(scratch), me(member) {}

  void run() {
    const int layers = static_cast<int>(m.layers.size());
    share(me, b.num_tokens, [&](int row) {
      embed(row);
      normalise_input(m.layers[0], row);
    });
    for (int i = 0; i < layers; ++i) {
      attention_block(m.layers[i], i);
      mlp_block(m.layers[i], i + 1 < layers ? &m.layers[i + 1] : nullptr);
    }
    head();
  }

 private:
  bool integer(const Matrix& matrix) const {
    return m.integer_activations && is_integer(matrix.format);
  }
  Product product(const Matrix& matrix, const Activations& x, float* out, size_t stride,
                  Into into) const {
    return {&matrix, tiles_for(matrix.format, m.integer_activations), &x, out, stride, into,
            s.room};
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

  void normalise_input(const Layer& layer, int row) {
    normalise(residual(row), layer.input_norm, row,
              integer(layer.q) || integer(layer.k) || integer(layer.v));
  }

  static Ahead ahead_of(const Matrix& matrix) {  // of a pair, both
    return {matrix.panels, matrix.num_panels(), matrix.pitch};
  }
  static Ahead input_of(const Layer& layer) {  // keys and values lie behind queries
    const int panels = layer.q.num_panels() + layer.k.num_panels() + layer.v.num_panels();
    return {layer.q.panels, panels, layer.q.pitch};
  }

  // Quantise all rows of what `reader` multiplies next, if it takes integers.
  auto quantise_for(const Matrix& reader, const Activations& a) const {
    return Then{integer(reader) ? b.num_tokens : 0, [&a](int row) { quantise(a, row); },
                ahead_of(reader)};
  }

  // Invariant: `normed` holds the layer's input.
  void attention_block(const Layer& layer, int index) {
    const size_t stride = m.qkv_stride();
    float *q = s.qkv, *k = q + m.q_width(), *v = k + m.kv_width();
    multiply(me,
             {product(layer.q, s.normed, q, stride, Into::store),
              product(layer.k, s.normed, k, stride, Into::store),
              product(layer.v, s.normed, v, stride, Into::store)},
             b.num_tokens, Then{b.num_tokens, [&](int row) {
               place_row<T>(m, layer, index, kv, b.slots[row], angles(row), qkv(row));
             }, ahead_of(layer.o)});
    attend_all(layer, index);
    const bool quantised = integer(layer.gate) || integer(layer.up);
    multiply(me, {product(layer.o, s.attended, s.residual, s.residual_stride, Into::add)},
             b.num_tokens, Then{b.num_tokens, [&](int row) {
               normalise(residual(row), layer.post_norm, row, quantised);
             }, ahead_of(layer.gate)});
  }

  // Invariant: `normed` holds the block's input; afterwards the next layer's, if there is one.
  void mlp_block(const Layer& layer, const Layer* next) {
    multiply_gated(me, product(layer.gate, s.normed, s.gated.values, s.gated.stride, Into::store),
                   product(layer.up, s.normed, s.gated.values, s.gated.stride, Into::gate),
                   b.num_tokens, m.gating, quantise_for(layer.down, s.gated));
    multiply(me, {product(layer.down, s.gated, s.residual, s.residual_stride, Into::add)},
             b.num_tokens, Then{next ? b.num_tokens : 0,
                                [&](int row) { normalise_input(*next, row); },
                                next ? input_of(*next) : ahead_of(m.lm_head)});
  }

  void head() {
    if (b.num_logits == 0) return;
    share(me, b.num_logits, [&](int i) {
      normalise(residual(b.logit_rows[i]), m.final_norm, i, integer(m.lm_head));
    });
    multiply(me, {product(m.lm_head, s.normed, b.logits, m.vocab, Into::store)}, b.num_logits,
             Then{b.num_logits, [&](int i) {
               b.greatest[i] = greatest(b.logits + static_cast<size_t>(i) * m.vocab, m.vocab);
             }});
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

  // Attend to the partitions of one span, in their order.
  void attend_span(const QueryGroup& g, int span, const Softmax& seen) {
    alignas(64) float memory[kQueries * (2 + kMaxHeadDim)];
    const Softmax next(memory);
    begin_softmax(g, seen);
    const int first = larger(span * kSpan, g.lowest() / kPartition);
    const int last = smaller((span + 1) * kSpan - 1, g.highest() / kPartition);
    for (int p = first; p <= last; ++p) {
      attend<T>(m, kv, g, p, next);
      merge(g, seen, next);
    }
  }

  static int span_of(int position) { return position / (kSpan * kPartition); }

  void attend_all(const Layer& layer, int index) {
    const int items = static_cast<int>(s.tiles.size()) * m.kv_heads * group_parts();
    int spans = 1;
    for (const Tile& tile : s.tiles)
      spans = larger(spans, span_of(b.positions[tile.first_row + tile.num_rows - 1]) + 1);
    if (items <= s.max_split_items && spans > 1) return attend_split(layer, index, items, spans);
    auto whole = [&](int item) {
      const QueryGroup g = queries(layer, index, item);
      alignas(64) float seen_memory[kQueries * (2 + kMaxHeadDim)],
          next_memory[kQueries * (2 + kMaxHeadDim)];
      const Softmax seen(seen_memory), next(next_memory);
      begin_softmax(g, seen);
      for (int span = span_of(g.lowest()); span <= span_of(g.highest()); ++span) {
        attend_span(g, span, next);
        merge(g, seen, next);
      }
      finish_softmax(g, seen);
    };
    share(me, items, whole, quantise_for(layer.o, s.attended));
  }

  void attend_split(const Layer& layer, int index, int items, int spans) {
    const size_t floats = Softmax::floats(m.head_dim);
    auto partial = [&](int item, int span) {
      return Softmax(s.partials + (static_cast<size_t>(item) * s.max_spans + span) * floats);
    };
    const int total = items * spans, chunk = larger(1, total / (8 * me.team_size()));
    auto partial_run = [&](int first, int last) {
      QueryGroup g;
      for (int i = first; i < last; ++i) {
        const int item = i / spans, span = i % spans;
        if (i == first || span == 0) g = queries(layer, index, item);
        attend_span(g, span, partial(item, span));
      }
    };
    share_runs(me, total, chunk, partial_run);
    auto merged = [&](int item) {
      const QueryGroup g = queries(layer, index, item);
      alignas(64) float memory[kQueries * (2 + kMaxHeadDim)];
      const Softmax seen(memory);
      begin_softmax(g, seen);
      for (int span = 0; span < spans; ++span) merge(g, seen, partial(item, span));
      finish_softmax(g, seen);
    };
    share(me, items, merged, quantise_for(layer.o, s.attended));
  }

  const Model& m;
  const KVStore& kv;
  const Batch& b;
  Scratch& s;
  Member& me;  // the thread that runs this
};

void step(const Model& m, const KVStore& kv, const Batch& b, Scratch& s, Team& team) {
  auto run = [&]<class T>(T) {
    team.run([&](Member& me) { Step<T>(m, kv, b, s, me).run(); });
  };
  switch (kv.format) {
    case KVFormat::fp32: return run(float{});
    case KVFormat::fp16: return run(Half{});
    case KVFormat::int8: return run(int8_t{});
  }
}

void product(const Matrix& matrix, const Activations& x, int rows, bool integer_activations,
             float* out, const Room& room, Team& team) {
  const bool quantised = integer_activations && is_integer(matrix.format);
  const TileSet tiles = tiles_for(matrix.format, integer_activations);
  team.run([&](Member& me) {
    if (quantised) share(me, rows, [&](int row) { quantise(x, row); });
    multiply(me, {{&matrix, tiles, &x, out, static_cast<size_t>(matrix.rows), Into::store, room}},
             rows);
  });
}

// Sums of all that was read, so that no read can be left out.
struct Reads {
  Lanes sums[4] = {zeros(), zeros(), zeros(), zeros()};

  void read(const uint8_t* data, size_t begin, size_t end) {
    for (size_t i = begin; i + 4 * kLineBytes <= end; i += 4 * kLineBytes) UNROLL
      for (int j = 0; j < 4; ++j) {
        prefetch(data + i + j * kLineBytes + kAhead);
        sums[j] = add(sums[j], load(reinterpret_cast<const float*>(data + i + j * kLineBytes)));
      }
  }

  uint64_t bits() const {
    const float x = sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
  }
};

uint64_t read(const uint8_t* data, size_t bytes, Team& team) {
  std::atomic<uint64_t> all{0};
  constexpr size_t kRun = 96 << 10;  // long, because a draw interrupts the stream
  const int chunks = static_cast<int>((bytes + kRun - 1) / kRun);
  team.run([&](Member& me) {
    Reads reads;
    share(me, chunks, [&](int chunk) {
      const size_t begin = chunk * kRun, end = begin + kRun < bytes ? begin + kRun : bytes;
      reads.read(data, begin, end);
    });
    all += reads.bits();
  });
  return all;
}

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// All pieces are phases of one region: waking a worker takes longer than reading a small piece.
int time_pieces(const uint8_t* data, size_t set, size_t piece, size_t start, int64_t limit_ns,
                int64_t* took_ns, int capacity, Team& team) {
  std::atomic<uint64_t> all{0};
  std::atomic<bool> over{false};
  int count = 0;
  size_t at = start;
  const int64_t first_ns = now_ns();
  int64_t last_ns = first_ns;
  auto piece_read = [&] {
    const int64_t ended_ns = now_ns();
    took_ns[count++] = ended_ns - last_ns;
    last_ns = ended_ns;
    at = at + 2 * piece <= set ? at + piece : 0;
    if (count == capacity || ended_ns - first_ns >= limit_ns)
      over.store(true, std::memory_order_relaxed);  // the end of the phase publishes it
  };
  team.run([&](Member& me) {
    Reads reads;
    const size_t parts = static_cast<size_t>(me.team_size());
    auto part = [&](int i, int) {
      reads.read(data + at, piece / parts * i / 256 * 256, piece / parts * (i + 1) / 256 * 256);
    };
    while (!over.load(std::memory_order_acquire))
      me.share(static_cast<int>(parts), 1, Draw::chunks, part, [] {}, piece_read);
    all += reads.bits();
  });
  return count;
}

}  // namespace

extern const Isa kIsa;
const Isa kIsa = {FLOORLINE_ISA_NAME, step, product, read, time_pieces};

}  // namespace floorline::FLOORLINE_ISA
