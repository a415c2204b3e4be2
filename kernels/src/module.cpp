// The Python face: arrays are checked for type, shape and layout, then handed on as pointers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "description.h"
#include "native_model.h"
#include "reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace floorline {
namespace {

using Array = nb::ndarray<nb::ro>;
using Writable = nb::ndarray<>;

[[noreturn]] void refuse(const char* name, const std::string& why) {
  throw nb::value_error((std::string(name) + " " + why).c_str());
}

// Give the data of an array that must be contiguous, of type T, on the CPU, and of this shape
// (-1 is any size).
template <class T, class A>
T* data(const A& array, const char* name, std::initializer_list<int64_t> shape) {
  using Element = std::remove_const_t<T>;
  if (array.device_type() != nb::device::cpu::value) refuse(name, "must be on the CPU");
  if (array.dtype() != nb::dtype<Element>())
    refuse(name, "must have elements of " + std::to_string(8 * sizeof(T)) + " bits: " +
                     (std::is_floating_point_v<T> ? "float"
                      : std::is_signed_v<T>       ? "int"
                                                  : "uint"));
  if (array.ndim() != shape.size())
    refuse(name, "must have " + std::to_string(shape.size()) + " dimensions");
  int64_t expected_stride = 1;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    const int64_t size = static_cast<int64_t>(array.shape(i)), wanted = shape.begin()[i];
    if (wanted >= 0 && size != wanted)
      refuse(name, "must have size " + std::to_string(wanted) + " in dimension " +
                       std::to_string(i) + ", not " + std::to_string(size));
    if (size > INT32_MAX) refuse(name, "is too large");
    if (array.size() > 0 && size > 1 && array.stride(i) != expected_stride)
      refuse(name, "must be contiguous");
    expected_stride *= size > 0 ? size : 1;
  }
  T* pointer = static_cast<T*>(array.data());
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(T) != 0) refuse(name, "must be aligned");
  return pointer;
}

Tensor matrix_tensor(const std::string& name, const nb::tuple& packed) {
  if (packed.size() != 4) refuse(name.c_str(), "must be (packed, rows, columns, format)");
  const Array array = nb::cast<Array>(packed[0]);
  const auto* bytes = data<const uint8_t>(array, name.c_str(), {-1});
  return {bytes, array.size(), nb::cast<int>(packed[1]), nb::cast<int>(packed[2]),
          format_named(nb::cast<std::string>(packed[3]))};
}

std::map<std::string, Tensor> tensors(const nb::dict& weights) {
  std::map<std::string, Tensor> all;
  for (auto [key, value] : weights) {
    const std::string name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::tuple>(value)) {
      all[name] = matrix_tensor(name, nb::cast<nb::tuple>(value));
      continue;
    }
    const Array array = nb::cast<Array>(value);
    const auto* values = data<const float>(array, name.c_str(), {-1});
    all[name] = {reinterpret_cast<const uint8_t*>(values), array.size() * sizeof(float), 1,
                 static_cast<int>(array.size()), Format::fp32};
  }
  return all;
}

void build(NativeModel* self, const nb::dict& weights, const nb::dict& description) {
  auto [shape, options] = read_description(description);
  new (self) NativeModel(std::move(shape), std::move(options), tensors(weights));
}

void step(NativeModel& self, const Array& tokens, const Array& positions, const Array& slots,
          const Array& block_tables, const Array& query_starts, const Array& logit_rows,
          const Writable& logits, const Writable& greatest) {
  Batch b;
  b.tokens = data<const int32_t>(tokens, "tokens", {-1});
  b.num_tokens = static_cast<int>(tokens.size());
  b.positions = data<const int32_t>(positions, "positions", {b.num_tokens});
  b.slots = data<const int32_t>(slots, "slots", {b.num_tokens});
  b.block_tables = data<const int32_t>(block_tables, "block_tables", {-1, -1});
  b.num_slices = static_cast<int>(block_tables.shape(0));
  b.table_width = static_cast<int>(block_tables.shape(1));
  b.query_starts = data<const int32_t>(query_starts, "query_starts", {b.num_slices + 1});
  b.logit_rows = data<const int32_t>(logit_rows, "logit_rows", {-1});
  b.num_logits = static_cast<int>(logit_rows.size());
  b.logits = data<float>(logits, "logits", {b.num_logits, self.model().vocab});
  b.greatest = data<int32_t>(greatest, "greatest", {b.num_logits});
  nb::gil_scoped_release release;
  self.step(b);
}

void build_reader(Reader* self, size_t bytes, int threads, const std::string& isa) {
  if (threads < 1) refuse("threads", "must be at least 1");
  if (find_isa(isa.c_str()) == nullptr)
    throw Unsupported("unsupported: no instruction set '" + isa + "' here");
  new (self) Reader(bytes, threads, isa);
}

// y = x times the packed matrix, computed as in a step.
void product(const Array& x, const nb::tuple& packed, const Writable& y,
             const std::string& activations, int threads, const std::string& isa_name) {
  const Tensor t = matrix_tensor("packed", packed);
  if (t.rows < 0 || t.columns < 0 || t.bytes != stored_bytes(t.format, t.rows, t.columns))
    refuse("packed", "has the wrong number of bytes");
  const auto* values = data<const float>(x, "x", {-1, t.columns});
  const int rows = static_cast<int>(x.shape(0));
  auto* out = data<float>(y, "y", {rows, t.rows});
  const Isa* isa = find_isa(isa_name.c_str());
  if (isa == nullptr) throw Unsupported("unsupported: no instruction set '" + isa_name + "' here");
  const int stride = round_up(t.columns, kGroup), groups = stride / kGroup;
  const size_t scalars = static_cast<size_t>(rows) * groups;
  std::vector<float> padded(scalars * kGroup), scales(scalars), offsets(scalars);
  std::vector<int8_t> bytes(padded.size());
  std::vector<int32_t> starts(scalars), halves(2 * scalars);
  for (int r = 0; r < rows; ++r)
    if (t.columns > 0)
      std::memcpy(&padded[static_cast<size_t>(r) * stride],
                  values + static_cast<size_t>(r) * t.columns, t.columns * sizeof(float));
  const Activations a{padded.data(), stride,        bytes.data(),   scales.data(),
                      starts.data(), halves.data(), offsets.data(), stride};
  const Matrix matrix{t.data, nullptr, t.rows, t.columns, t.format,
                      panel_bytes(t.format, t.columns)};
  Team team(threads);
  const size_t pitch = is_coded(t.format) ? expanded_bytes(t.columns) : 0;
  std::vector<uint8_t> room(pitch * threads + kLineBytes);
  isa->product(matrix, a, rows, integer_activations_named(activations), out, {room.data(), pitch},
               team);
}

}  // namespace

template <size_t N>
nb::tuple names(const char* const (&all)[N]) {
  nb::list found;
  for (const char* name : all) found.append(name);
  return nb::tuple(found);
}

// What Python must agree with: tests compare these with its own homes of the same facts.
void export_layout(nb::module_& m) {
  m.attr("PANEL_ROWS") = kLanes;
  m.attr("GROUP_COLUMNS") = kGroup;
  m.attr("QUAD_COLUMNS") = kQuad;
  m.attr("BYTE_ZERO") = kByteZero;
  m.attr("MAX_THREADS") = Team::kMaxSize;
  m.attr("MATRIX_FORMATS") = names(kFormatNames);
  m.attr("KV_FORMATS") = names(kKVFormatNames);
  m.def("stored_bytes", [](int rows, int columns, const std::string& format) {
    return stored_bytes(format_named(format), rows, columns);
  });
}

NB_MODULE(_native, m) {
  nb::exception<Unsupported>(m, "Unsupported", PyExc_ValueError);
  nb::class_<NativeModel>(m, "NativeModel")
      .def("__init__", &build, "weights"_a, "description"_a)
      .def("step", &step, "tokens"_a, "positions"_a, "slots"_a, "block_tables"_a, "query_starts"_a,
           "logit_rows"_a, "logits"_a, "greatest"_a)
      .def("read_weights", &NativeModel::read_weights, nb::call_guard<nb::gil_scoped_release>())
      .def("read_kv", &NativeModel::read_kv, "num_bytes"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("isa", &NativeModel::isa)
      .def_prop_ro("threads", &NativeModel::threads)
      .def_prop_ro("weight_bytes", &NativeModel::weight_bytes)
      .def_prop_ro("kv_bytes", &NativeModel::kv_bytes);
  nb::class_<Reader>(m, "Reader")
      .def("__init__", &build_reader, "num_bytes"_a, nb::kw_only(), "threads"_a, "isa"_a = "")
      .def("touch", &Reader::touch, "begin"_a, "end"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("read", &Reader::read, nb::kw_only(), "set"_a, "piece"_a, "start"_a, "limit_ns"_a,
           nb::call_guard<nb::gil_scoped_release>());
  m.def("product", &product, "x"_a, "packed"_a, "y"_a, nb::kw_only(), "activations"_a = "int8",
        "threads"_a = 1, "isa"_a = "");
  m.def("isas", &isa_names);
  export_layout(m);
}

}  // namespace floorline
