// Building a native model: sizes are checked, weights copied into one arena in execution order.
#include "native_model.h"

#include <iterator>
#include <tuple>

namespace floorline {

namespace {

const Isa* require_isa(const std::string& name) {
  const Isa* isa = find_isa(name.c_str());
  if (isa == nullptr) throw Unsupported("unsupported: no instruction set '" + name + "' here");
  return isa;
}

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

// One call at a time has the team, which runs one region at a time.
class Turn {
 public:
  explicit Turn(std::atomic_flag& busy) : busy_(busy) {
    require(!busy_.test_and_set(), "a step of this model is already running");
  }
  ~Turn() { busy_.clear(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& busy_;
};

// Give the options back once they and the model's sizes are sound.
Options checked(Options o, const Model& m) {
  if (m.head_dim % 2 != 0 || m.head_dim > kMaxHeadDim)
    throw Unsupported("unsupported: head_dim must be even and at most " +
                      std::to_string(kMaxHeadDim) + ", not " + std::to_string(m.head_dim));
  require(
      m.vocab > 0 && m.hidden > 0 && m.inner > 0 && m.heads > 0 && m.kv_heads > 0 && m.head_dim > 0,
      "every size of the model must be positive");
  require(!m.layers.empty(), "a model has at least one layer");
  require(m.heads % m.kv_heads == 0, "heads must share kv-heads evenly");
  require(o.num_blocks > 0 && o.block_size > 0, "the KV store needs blocks and a block size");
  require(o.num_blocks <= INT32_MAX / o.block_size, "the KV store has too many slots");
  require(o.max_tokens > 0 && o.max_positions > 0, "max_tokens and max_positions must be positive");
  require(o.inverse_frequencies.size() == static_cast<size_t>(m.head_dim / 2),
          "inverse_frequencies must have head_dim / 2 entries");
  require(o.windows.size() == m.layers.size(), "windows must have an entry for each layer");
  for (int window : o.windows) require(window >= 0, "a sliding window must not be negative");
  return o;
}

size_t tensor_room(const Tensor& t) {
  const size_t padded = t.rows == 1 ? round_up(t.columns, kLanes) * sizeof(float) : t.bytes;
  return Arena::padded(padded > t.bytes ? padded : t.bytes);
}

}  // namespace

Format format_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(std::size(kFormatNames)); ++i)
    if (name == kFormatNames[i]) return static_cast<Format>(i);
  throw Unsupported("unsupported: weight format " + name);
}

KVFormat kv_format_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(std::size(kKVFormatNames)); ++i)
    if (name == kKVFormatNames[i]) return static_cast<KVFormat>(i);
  throw Unsupported("unsupported: KV format " + name);
}

Gating gating_named(const std::string& activation) {
  if (activation == "silu") return Gating::silu;
  if (activation == "gelu_tanh") return Gating::gelu_tanh;
  throw Unsupported("unsupported: activation " + activation);
}

bool integer_activations_named(const std::string& activations) {
  if (activations == "int8") return true;
  if (activations == "fp32") return false;
  throw Unsupported("unsupported: activations " + activations);
}

NativeModel::NativeModel(Model shape, Options options, std::map<std::string, Tensor> weights)
    : model_(std::move(shape)),
      options_(checked(std::move(options), model_)),
      given_(std::move(weights)),
      isa_(require_isa(options_.isa)),
      team_(options_.threads) {
  take_weights();
  kv_ = {nullptr, options_.num_blocks, options_.block_size, options_.kv_format};
  kv_bytes_ = model_.layers.size() * kv_.num_blocks * model_.kv_heads * kv_.head_bytes(model_);
  store_.emplace(Arena::padded(kv_bytes_));
  kv_.data = store_->take<uint8_t>(kv_bytes_);
  touch_kv();
  take_scratch();
}

const Tensor* NativeModel::find(const std::string& name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : &found->second;
}

const Tensor& NativeModel::find_matrix(const std::string& name, int rows, int columns) const {
  const Tensor* t = find(name);
  require(t != nullptr, "weight " + name + " is missing");
  require(t->rows == rows && t->columns == columns,
          "weight " + name + " must be " + std::to_string(rows) + " x " + std::to_string(columns));
  require(t->bytes == stored_bytes(t->format, rows, columns),
          "weight " + name + " has the wrong number of packed bytes");
  return *t;
}

// Copy the panels of a matrix to `panels`, `pitch` bytes apart, and take its bias.
Matrix NativeModel::matrix_at(uint8_t* panels, size_t pitch, const std::string& name,
                              const Tensor& t) {
  Matrix matrix{panels, nullptr, t.rows, t.columns, t.format, pitch};
  const size_t bytes = panel_bytes(t.format, t.columns);
  for (int i = 0; i < matrix.num_panels(); ++i)
    std::memcpy(panels + i * pitch, t.data + i * bytes, bytes);
  weight_bytes_ += t.bytes;
  if (is_coded(t.format) && t.columns > coded_columns_) coded_columns_ = t.columns;
  has_halves_ = has_halves_ || coding(t.format).scales == 2;
  if (find(name + ".bias") != nullptr) matrix.bias = take_vector(name + ".bias", t.rows, true);
  return matrix;
}

Matrix NativeModel::take_matrix(const std::string& name, int rows, int columns) {
  const Tensor& t = find_matrix(name, rows, columns);
  uint8_t* panels = weights_->take<uint8_t>(t.bytes);
  return matrix_at(panels, panel_bytes(t.format, columns), name, t);
}

// Place two matrices that are read together panel by panel in turns, so that they are one stream.
std::pair<Matrix, Matrix> NativeModel::take_pair(const std::string& first,
                                                 const std::string& second, int rows,
                                                 int columns) {
  const Tensor &a = find_matrix(first, rows, columns), &b = find_matrix(second, rows, columns);
  const size_t bytes = panel_bytes(a.format, columns);
  const size_t pitch = bytes + panel_bytes(b.format, columns);
  uint8_t* panels = weights_->take<uint8_t>(a.bytes + b.bytes);
  return {matrix_at(panels, pitch, first, a), matrix_at(panels + bytes, pitch, second, b)};
}

const float* NativeModel::take_vector(const std::string& name, int width, bool padded) {
  const Tensor* t = find(name);
  require(t != nullptr, "weight " + name + " is missing");
  require(t->bytes == width * sizeof(float),
          "weight " + name + " must have " + std::to_string(width) + " fp32 values");
  float* copy = weights_->take<float>(padded ? round_up(width, kLanes) : width);
  std::memcpy(copy, t->data, t->bytes);
  weight_bytes_ += t->bytes;
  return copy;
}

void NativeModel::take_layer(int index) {
  const std::string prefix = "layers." + std::to_string(index) + ".";
  const Model& m = model_;
  Layer& layer = model_.layers[index];
  layer.window = options_.windows[index];
  layer.input_norm = take_vector(prefix + "input_norm", m.hidden, false);
  layer.q = take_matrix(prefix + "q_proj", m.q_width(), m.hidden);
  layer.k = take_matrix(prefix + "k_proj", m.kv_width(), m.hidden);
  layer.v = take_matrix(prefix + "v_proj", m.kv_width(), m.hidden);
  if (find(prefix + "q_norm") != nullptr) {
    layer.q_norm = take_vector(prefix + "q_norm", m.head_dim, false);
    layer.k_norm = take_vector(prefix + "k_norm", m.head_dim, false);
  }
  layer.o = take_matrix(prefix + "o_proj", m.hidden, m.q_width());
  layer.post_norm = take_vector(prefix + "post_norm", m.hidden, false);
  std::tie(layer.gate, layer.up) =
      take_pair(prefix + "gate_proj", prefix + "up_proj", m.inner, m.hidden);
  layer.down = take_matrix(prefix + "down_proj", m.hidden, m.inner);
}

void NativeModel::take_weights() {
  size_t room = Arena::padded(0);
  for (const auto& [name, tensor] : given_) room += tensor_room(tensor);
  weights_.emplace(room);
  weights_start_ = weights_->take<uint8_t>(0);
  for (int i = 0; i < static_cast<int>(model_.layers.size()); ++i) take_layer(i);
  model_.final_norm = take_vector("final_norm", model_.hidden, false);
  model_.embed = take_matrix("embed", model_.vocab, model_.hidden);
  model_.lm_head = find("lm_head") == nullptr ? model_.embed
                                              : take_matrix("lm_head", model_.vocab, model_.hidden);
  given_.clear();
  model_.inverse_frequencies = options_.inverse_frequencies.data();
}

void NativeModel::take_activations(Activations& a, int width) {
  const size_t rows = options_.max_tokens;
  a.stride = a.byte_stride = round_up(width, kGroup);
  a.values = work_->take<float>(rows * a.stride);
  a.bytes = work_->take<int8_t>(rows * a.byte_stride);
  a.scales = work_->take<float>(rows * a.group_stride());
  a.starts = work_->take<int32_t>(rows * a.group_stride());
  if (has_halves_) a.halves = work_->take<int32_t>(rows * 2 * a.group_stride());
  a.offsets = work_->take<float>(rows * a.group_stride());
}

// More than the scratch takes. A value of activations needs four bytes, one more when quantised,
// and its share of twenty bytes a group: below 1.5 floats.
constexpr int kActivationFloats = 2, kTakes = 32;

void NativeModel::take_scratch() {
  const Model& m = model_;
  Scratch& s = scratch_;
  const size_t rows = options_.max_tokens;
  s.residual_stride = round_up(m.hidden, kLanes);
  s.max_spans = (options_.max_positions + kSpan * kPartition - 1) / (kSpan * kPartition);
  s.max_split_items = kSplitItems * options_.threads;
  const size_t partial = static_cast<size_t>(kQueries) * (2 + round_up(m.head_dim, kLanes));
  const size_t partials = partial * s.max_spans * s.max_split_items;
  const size_t row = s.residual_stride + m.qkv_stride() + m.head_dim +
                     3 * kActivationFloats * m.widest();  // of three Activations
  s.room.pitch = coded_columns_ ? Arena::padded(expanded_bytes(coded_columns_)) : 0;
  const size_t room = s.room.pitch * options_.threads;
  work_.emplace((rows * row + partials) * sizeof(float) + room + kTakes * Arena::padded(1));
  s.residual = work_->take<float>(rows * s.residual_stride);
  s.qkv = work_->take<float>(rows * m.qkv_stride());
  s.angles = work_->take<float>(rows * m.head_dim);
  s.partials = work_->take<float>(partials);
  take_activations(s.normed, m.hidden);
  take_activations(s.attended, m.q_width());
  take_activations(s.gated, m.inner);
  s.room.data = work_->take<uint8_t>(room);
  s.tiles.reserve(rows);
}

// Write every page now, so that no step waits for one, and a lack of memory shows at the start.
void NativeModel::touch_kv() {
  constexpr size_t kRun = size_t{2} << 20;
  const int runs = static_cast<int>((kv_bytes_ + kRun - 1) / kRun);
  team_.run([&](Team::Member& me) {
    auto clear = [&](int first, int last) {
      const size_t begin = first * kRun, end = last * kRun;
      std::memset(kv_.data + begin, 0, (end < kv_bytes_ ? end : kv_bytes_) - begin);
    };
    me.share(runs, 1, Draw::chunks, clear, [] {}, [] {});
  });
}

uint64_t NativeModel::read_weights() {
  const Turn turn(busy_);
  // It reads what lies between the matrices too: a sanitised build gives up its red zones here.
  ASAN_UNPOISON_MEMORY_REGION(weights_start_, weight_bytes_);
  return isa_->read(weights_start_, weight_bytes_, team_);
}

uint64_t NativeModel::read_kv(size_t bytes) {
  const Turn turn(busy_);
  return isa_->read(kv_.data, bytes < kv_bytes_ ? bytes : kv_bytes_, team_);
}

void NativeModel::check_slice(const Batch& b, int slice) const {
  const int begin = b.query_starts[slice], end = b.query_starts[slice + 1];
  require(begin < end && end <= b.num_tokens, "query_starts must rise from 0 to the tokens");
  const int32_t first = b.positions[begin], length = first + end - begin;
  require(first >= 0 && length <= options_.max_positions, "a position is past max_positions");
  require(length <= b.table_width * static_cast<int64_t>(kv_.block_size),
          "a block table is shorter than its slice's context");
  const int32_t* table = b.block_tables + static_cast<size_t>(slice) * b.table_width;
  for (int i = 0; i * kv_.block_size < length; ++i)
    require(table[i] >= 0 && table[i] < kv_.num_blocks,
            "a block table names a block that does not exist");
  for (int row = begin; row < end; ++row) {
    const int position = first + row - begin, block = table[position / kv_.block_size];
    require(b.positions[row] == position, "positions must be consecutive within a slice");
    require(b.slots[row] == block * kv_.block_size + position % kv_.block_size,
            "a slot is not where the block table puts its position");
  }
}

void NativeModel::check_rows(const Batch& b) const {
  require(b.num_tokens > 0 && b.num_tokens <= options_.max_tokens,
          "a step has 1 to max_tokens = " + std::to_string(options_.max_tokens) + " tokens");
  require(
      b.num_slices > 0 && b.query_starts[0] == 0 && b.query_starts[b.num_slices] == b.num_tokens,
      "query_starts must rise from 0 to the tokens");
  for (int row = 0; row < b.num_tokens; ++row)
    require(b.tokens[row] >= 0 && b.tokens[row] < model_.vocab,
            "a token id is not in the vocabulary");
  require(b.num_logits <= b.num_tokens, "more logit rows than tokens");
  for (int i = 0; i < b.num_logits; ++i)
    require(b.logit_rows[i] >= 0 && b.logit_rows[i] < b.num_tokens,
            "a logit row is not in the step");
  for (int slice = 0; slice < b.num_slices; ++slice) check_slice(b, slice);
}

void NativeModel::cut_tiles(const Batch& b) {
  const int group = model_.heads / model_.kv_heads;
  const int rows = group < kQueries ? kQueries / group : 1;
  scratch_.tiles.clear();
  for (int slice = 0; slice < b.num_slices; ++slice)
    for (int row = b.query_starts[slice]; row < b.query_starts[slice + 1]; row += rows) {
      const int left = b.query_starts[slice + 1] - row;
      scratch_.tiles.push_back({slice, row, rows < left ? rows : left});
    }
}

void NativeModel::step(const Batch& batch) {
  const Turn turn(busy_);
  check_rows(batch);
  cut_tiles(batch);
  isa_->step(model_, kv_, batch, scratch_, team_);
}

}  // namespace floorline
