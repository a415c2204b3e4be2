// A model with its KV store, scratch and threads: what the Python side holds. It checks everything
// that comes from outside; the kernels behind it check nothing.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "arena.h"
#include "isa.h"

namespace floorline {

// The kernels do not run such a model: the torch path serves it.
struct Unsupported : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// One weight as packed by layout.h; a norm or bias is fp32 with rows = 1, not packed.
struct Tensor {
  const uint8_t* data;
  size_t bytes;
  int rows, columns;
  Format format;
};

// How a model runs, and what of its description no step needs.
struct Options {
  int num_blocks = 0, block_size = 0, max_tokens = 0, max_positions = 0, threads = 1;
  KVFormat kv_format = KVFormat::fp32;
  std::vector<int> windows;                // per layer; 0 is full attention
  std::vector<float> inverse_frequencies;  // [head_dim / 2]
  std::string isa;                         // empty: the fastest
};

// Raise Unsupported.
Format format_named(const std::string& name);
KVFormat kv_format_named(const std::string& name);
Gating gating_named(const std::string& activation);
bool integer_activations_named(const std::string& activations);

class NativeModel {
 public:
  // `shape` has the sizes. Weights are copied: the caller need not keep them.
  NativeModel(Model shape, Options options, std::map<std::string, Tensor> weights);

  // Run one step. Raises std::invalid_argument for a bad batch, before anything is written, and
  // while another call uses the threads.
  void step(const Batch& batch);

  // Read all weights, or `bytes` of the KV store, as fast as this machine can. Raise as step() does
  // while another call uses the threads.
  uint64_t read_weights();
  uint64_t read_kv(size_t bytes);

  const Model& model() const { return model_; }
  const char* isa() const { return isa_->name; }
  int threads() const { return team_.size(); }
  size_t weight_bytes() const { return weight_bytes_; }
  size_t kv_bytes() const { return kv_bytes_; }

 private:
  void take_weights();
  void take_layer(int index);
  Matrix take_matrix(const std::string& name, int rows, int columns);
  std::pair<Matrix, Matrix> take_pair(const std::string& first, const std::string& second, int rows,
                                      int columns);
  const Tensor& find_matrix(const std::string& name, int rows, int columns) const;
  Matrix matrix_at(uint8_t* panels, size_t pitch, const std::string& name, const Tensor& t);
  const float* take_vector(const std::string& name, int width, bool padded);
  const Tensor* find(const std::string& name) const;
  void take_scratch();
  void touch_kv();
  void take_activations(Activations& a, int width);
  void check_rows(const Batch& batch) const;
  void check_slice(const Batch& batch, int slice) const;
  void cut_tiles(const Batch& batch);

  Model model_;
  Options options_;
  std::map<std::string, Tensor> given_;
  const Isa* isa_;
  KVStore kv_;
  Scratch scratch_;
  std::optional<Arena> weights_, store_, work_;
  const uint8_t* weights_start_ = nullptr;
  size_t weight_bytes_ = 0, kv_bytes_ = 0;
  int coded_columns_ = 0;    // of the widest coded matrix
  bool has_halves_ = false;  // whether a matrix has a scale for half a group
  Team team_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace floorline
