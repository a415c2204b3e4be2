// The weights that a driver makes up for a model, by name as NativeModel asks for them.
#pragma once
#include "native_model.h"

namespace floorline {

class Weights {
 public:
  // fill(data, tensor) writes the tensor's bytes.
  template <class Fill>
  Weights(const Model& m, Format format, Fill fill) {
    auto add = [&](const std::string& name, Tensor t) {
      uint8_t* data = memory_.emplace_back(t.bytes).data();
      fill(data, t);
      t.data = data;
      all[name] = t;
    };
    auto matrix = [&](const std::string& name, int rows, int columns) {
      add(name, {nullptr, stored_bytes(format, rows, columns), rows, columns, format});
    };
    auto vector = [&](const std::string& name, int width) {
      add(name, {nullptr, width * sizeof(float), 1, width, Format::fp32});
    };
    for (size_t i = 0; i < m.layers.size(); ++i) {
      const std::string prefix = "layers." + std::to_string(i) + ".";
      vector(prefix + "input_norm", m.hidden);
      vector(prefix + "post_norm", m.hidden);
      matrix(prefix + "q_proj", m.q_width(), m.hidden);
      matrix(prefix + "k_proj", m.kv_width(), m.hidden);
      matrix(prefix + "v_proj", m.kv_width(), m.hidden);
      matrix(prefix + "o_proj", m.hidden, m.q_width());
      matrix(prefix + "gate_proj", m.inner, m.hidden);
      matrix(prefix + "up_proj", m.inner, m.hidden);
      matrix(prefix + "down_proj", m.hidden, m.inner);
    }
    vector("final_norm", m.hidden);
    matrix("embed", m.vocab, m.hidden);
    matrix("lm_head", m.vocab, m.hidden);
  }

  std::map<std::string, Tensor> all;

 private:
  std::vector<std::vector<uint8_t>> memory_;
};

}  // namespace floorline
