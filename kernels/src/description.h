// Reads the one description of a native model that `kernels/build.py:describe` writes. Every key is
// read once, here; one that is missing, of another type or unknown is refused by its name.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>

#include "native_model.h"

namespace floorline {

class Description {
 public:
  explicit Description(const nanobind::dict& entries) : entries_(entries) {}

  // An int must be one: nanobind would turn "5" into 5 if it were allowed to convert.
  int integer(const char* key) { return take<int>(key, "an int of 32 bits", false); }
  float number(const char* key) { return take<float>(key, "a number", true); }
  std::string text(const char* key) { return take<std::string>(key, "a str", false); }
  std::vector<int> integers(const char* key) {
    return take<std::vector<int>>(key, "a list of ints of 32 bits", false);
  }
  std::vector<float> numbers(const char* key) {
    return take<std::vector<float>>(key, "a list of numbers", true);
  }

  // Refuse the keys that nobody has read.
  void end() const {
    for (auto [key, value] : entries_) {
      const std::string name = nanobind::cast<std::string>(nanobind::str(key));
      if (read_.count(name) == 0)
        throw nanobind::value_error(("the description has an unknown key: " + name).c_str());
    }
  }

 private:
  template <class T>
  T take(const char* key, const char* kind, bool convert) {
    if (!entries_.contains(key))
      throw nanobind::value_error(("the description lacks " + std::string(key)).c_str());
    read_.insert(key);
    T value;
    if (!nanobind::try_cast(entries_[key], value, convert))
      throw nanobind::type_error((std::string(key) + " must be " + kind).c_str());
    return value;
  }

  nanobind::dict entries_;
  std::set<std::string> read_;
};

inline std::pair<Model, Options> read_description(const nanobind::dict& entries) {
  Description d(entries);
  Model m;
  m.vocab = d.integer("vocab_size");
  m.hidden = d.integer("hidden_size");
  m.inner = d.integer("intermediate_size");
  m.heads = d.integer("num_heads");
  m.kv_heads = d.integer("num_kv_heads");
  m.head_dim = d.integer("head_dim");
  m.norm_eps = d.number("norm_eps");
  m.gating = gating_named(d.text("activation"));
  m.integer_activations = integer_activations_named(d.text("activations"));
  Options o;
  o.windows = d.integers("windows");
  o.inverse_frequencies = d.numbers("inverse_frequencies");
  o.num_blocks = d.integer("num_blocks");
  o.block_size = d.integer("block_size");
  o.max_tokens = d.integer("max_tokens");
  o.max_positions = d.integer("max_positions");
  o.threads = d.integer("threads");
  o.kv_format = kv_format_named(d.text("kv_format"));
  o.isa = d.text("isa");
  d.end();
  m.layers.resize(o.windows.size());
  return {std::move(m), std::move(o)};
}

}  // namespace floorline
