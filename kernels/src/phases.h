// How the members of a team share out the items of a phase. A phase ends at a barrier.
#pragma once
#include "matmul.h"

namespace floorline::FLOORLINE_ISA {

template <class F>
inline void share(Team& team, int count, int chunk, F item) {
  for (int first = team.take(chunk); first < count; first = team.take(chunk))
    for (int i = first; i < smaller(first + chunk, count); ++i) item(i);
  team.barrier();
}

enum class Into { store, add, gate };  // out = y; out += y; out = activation(out) * y

struct Product {
  const Matrix* matrix;
  TileSet tiles;
  const Activations* x;
  float* out;
  size_t stride;
  Into into;
};

inline void put(float* out, Lanes y, int n, Into into, Gating gating) {
  if (into != Into::store) {
    const Lanes before = load_part(out, n);
    if (into == Into::add) y = add(before, y);
    else y = mul(gating == Gating::silu ? silu(before) : gelu_tanh(before), y);
  }
  store_part(out, y, n);
}

// Multiply rows [first, last) with one panel, in register tiles of about equal height.
inline void multiply_panel(const Product& p, int panel, int first, int last, Gating gating) {
  const Matrix& m = *p.matrix;
  const int rows = last - first, count = (rows + p.tiles.max_rows - 1) / p.tiles.max_rows;
  const int column = panel * kLanes, n = smaller(kLanes, m.rows - column);
  const uint8_t* weights = m.panels + panel * m.panel_stride();
  const Lanes bias = m.bias ? load(m.bias + column) : zeros();
  alignas(64) float tile[kFloatRows * kLanes];
  for (int i = 0; i < count; ++i) {
    const int begin = first + rows * i / count, end = first + rows * (i + 1) / count;
    p.tiles.by_rows[end - begin - 1](weights, *p.x, begin, m.columns, tile);
    for (int row = begin; row < end; ++row)
      put(p.out + row * p.stride + column, add(load(tile + (row - begin) * kLanes), bias), n,
          p.into, gating);
  }
}

inline int panels_per_chunk(const Matrix& m, int panels, const Team& team) {
  const int by_bytes = static_cast<int>(kChunkBytes / (m.panel_stride() + 1)) + 1;
  return larger(1, smaller(by_bytes, panels / (4 * team.size())));
}

// Run up to three products as one phase: their panels are one list.
inline void multiply(Team& team, std::initializer_list<Product> products, int rows) {
  int total = 0;
  for (const Product& p : products) total += p.matrix->num_panels();
  const int chunk = panels_per_chunk(*products.begin()->matrix, total, team);
  for (int first = team.take(chunk); first < total; first = team.take(chunk)) {
    for (int r = 0; r < rows; r += kRowBlock)
      for (int i = first; i < smaller(first + chunk, total); ++i) {
        const Product* p = products.begin();
        int panel = i;
        for (; panel >= p->matrix->num_panels(); ++p) panel -= p->matrix->num_panels();
        multiply_panel(*p, panel, r, smaller(r + kRowBlock, rows), Gating::silu);
      }
  }
  team.barrier();
}

// out = activation(gate) * up: the gate's panel, then the same columns of up.
inline void multiply_gated(Team& team, const Product& gate, const Product& up, int rows,
                           Gating gating) {
  const int total = gate.matrix->num_panels();
  const int chunk = panels_per_chunk(*gate.matrix, total, team);
  for (int first = team.take(chunk); first < total; first = team.take(chunk)) {
    for (int r = 0; r < rows; r += kRowBlock)
      for (int i = first; i < smaller(first + chunk, total); ++i) {
        multiply_panel(gate, i, r, smaller(r + kRowBlock, rows), gating);
        multiply_panel(up, i, r, smaller(r + kRowBlock, rows), gating);
      }
  }
  team.barrier();
}

}  // namespace floorline::FLOORLINE_ISA
