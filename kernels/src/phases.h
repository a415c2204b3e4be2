// How the members of a team share out the items of a phase, and what follows for each row.
#pragma once
#include "matmul.h"

namespace floorline::FLOORLINE_ISA {

using Member = Team::Member;

// With up to this many rows, the last thread to finish a phase does what follows for all of them:
// that is cheaper than another phase.
constexpr int kFewRows = 4;
constexpr int kIdleLines = 16;         // that a waiting member prefetches at a time
constexpr int kIdleBytes = 128 << 10;  // that it prefetches in all: so much stays in its own cache

// The panels of the product after a phase, one after the other; count is 0 if there is none.
struct Ahead {
  const uint8_t* panels = nullptr;
  int count = 0;
  size_t stride = 0;

  // Give a function that prefetches the panels that a member will begin with, a piece each call, so
  // that they are on their way while others finish.
  auto fetch(const Member& me) const {
    const uint8_t* next = panels + me.first_of(count) * stride;
    const uint8_t* end = panels + me.first_of(count, 1) * stride;
    if (end - next > kIdleBytes) end = next + kIdleBytes;
    return [=]() mutable {
      for (int i = 0; i < kIdleLines && next < end; ++i, next += kLineBytes) prefetch(next);
    };
  }
};

// What follows a phase: row(i) for each of `rows` (0 for nothing), and then a product.
template <class F>
struct Then {
  int rows;
  F row;
  Ahead ahead = {};
};
template <class F>
Then(int, F) -> Then<F>;
template <class F>
Then(int, F, Ahead) -> Then<F>;
inline constexpr auto kNoRow = [](int) {};

// Run items(first, last) over [0, count), at most `chunk` at a time, and then what follows.
template <class F, class G = decltype(kNoRow)>
inline void share_runs(Member& me, int count, int chunk, F items,
                       const Then<G>& then = {0, kNoRow}, Draw draws = Draw::halves) {
  const bool few = then.rows <= kFewRows;
  auto fetch = then.ahead.fetch(me);
  me.share(count, chunk, draws, items, fetch, [&] {
    for (int i = 0; few && i < then.rows; ++i) then.row(i);
  });
  auto row = [&](int i, int) { then.row(i); };
  if (!few) me.share(then.rows, 1, Draw::chunks, row, fetch, [] {});
}

// Run item(i) for each of `count`, and then what follows.
template <class F, class G = decltype(kNoRow)>
inline void share(Member& me, int count, F item, const Then<G>& then = {0, kNoRow}) {
  share_runs(me, count, 1, [&](int i, int) { item(i); }, then, Draw::chunks);
}

enum class Into { store, add, gate };  // out = y; out += y; out = activation(out) * y

struct Product {
  const Matrix* matrix;
  TileSet tiles;
  const Activations* x;
  float* out;
  size_t stride;
  Into into;
  Room room;
};

inline void put(float* out, Lanes y, int n, Into into, Gating gating) {
  if (into != Into::store) {
    const Lanes before = load_part(out, n);
    if (into == Into::add) y = add(before, y);
    else y = mul(gating == Gating::silu ? silu(before) : gelu_tanh(before), y);
  }
  store_part(out, y, n);
}

// Multiply rows [first, last) with one panel, in register tiles of about equal height. A coded
// panel that more than one tile would read is expanded first.
inline void multiply_panel(const Product& p, int panel, int first, int last, Gating gating,
                           const Member& me) {
  const Matrix& m = *p.matrix;
  const uint8_t* weights = m.panels + panel * m.pitch;
  TileSet tiles = p.tiles;
  const int rows = last - first;
  if (tiles.expand && rows > tiles.direct_rows) {
    uint8_t* room = p.room.data + me.index() * p.room.pitch;
    tiles.expand(weights, m.columns, room);
    weights = room;
    tiles.by_rows = tiles.expanded_by_rows;
    tiles.max_rows = tiles.expanded_max_rows;
  }
  const int count = (rows + tiles.max_rows - 1) / tiles.max_rows;
  const int column = panel * kLanes, n = smaller(kLanes, m.rows - column);
  const Lanes bias = m.bias ? load(m.bias + column) : zeros();
  alignas(64) float tile[kFloatRows * kLanes];
  for (int i = 0; i < count; ++i) {
    const int begin = first + rows * i / count, end = first + rows * (i + 1) / count;
    tiles.by_rows[end - begin - 1](weights, *p.x, begin, m.columns, tile);
    for (int row = begin; row < end; ++row)
      put(p.out + row * p.stride + column, add(load(tile + (row - begin) * kLanes), bias), n,
          p.into, gating);
  }
}

// Of a gated pair, both panels count: the pitch spans them.
inline int panels_per_chunk(const Matrix& m, int panels, int rows, const Member& me) {
  const size_t bytes = rows > kRowBlock ? kManyRowsBytes : kChunkBytes;
  const int by_bytes = static_cast<int>(bytes / (m.pitch + 1)) + 1;
  return larger(1, smaller(by_bytes, panels / (4 * me.team_size())));
}

// Run up to three products as one phase: their panels are one list. What follows is `then`.
template <class F = decltype(kNoRow)>
inline void multiply(Member& me, std::initializer_list<Product> products, int rows,
                     const Then<F>& then = {0, kNoRow}) {
  int total = 0;
  for (const Product& p : products) total += p.matrix->num_panels();
  const int chunk = panels_per_chunk(*products.begin()->matrix, total, rows, me);
  auto panels = [&](int first, int last) {
    for (int r = 0; r < rows; r += kRowBlock)
      for (int i = first; i < last; ++i) {
        const Product* p = products.begin();
        int panel = i;
        for (; panel >= p->matrix->num_panels(); ++p) panel -= p->matrix->num_panels();
        multiply_panel(*p, panel, r, smaller(r + kRowBlock, rows), Gating::silu, me);
      }
  };
  share_runs(me, total, chunk, panels, then);
}

// out = activation(gate) * up: a panel of the gate, then the same columns of up. What follows is
// `then`.
template <class F>
inline void multiply_gated(Member& me, const Product& gate, const Product& up, int rows,
                           Gating gating, const Then<F>& then) {
  const int total = gate.matrix->num_panels();
  const int chunk = panels_per_chunk(*gate.matrix, total, rows, me);
  auto panels = [&](int first, int last) {
    for (int r = 0; r < rows; r += kRowBlock)
      for (int i = first; i < last; ++i) {
        multiply_panel(gate, i, r, smaller(r + kRowBlock, rows), gating, me);
        multiply_panel(up, i, r, smaller(r + kRowBlock, rows), gating, me);
      }
  };
  share_runs(me, total, chunk, panels, then);
}

}  // namespace floorline::FLOORLINE_ISA
