// The Python module elmo_fast._C. Importing it implements the ops for the CPU; its functions are those that are no ops of tensors. No
// other file knows of Python.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "common/digest.h"
#include "common/operand.h"
#include "common/tensor.h"
#include "static/cooccurrences.h"
#include "static/vector_text.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

// Must have exactly this type and be contiguous: arguments are declared noconvert(), so that nothing is copied.
template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
std::span<const T> span_of(const Array<T>& array) {
  return {array.data(), static_cast<size_t>(array.size())};
}

std::string_view text_of(const Array<uint8_t>& array) { return {reinterpret_cast<const char*>(array.data()), static_cast<size_t>(array.size())}; }

template <typename T>
py::array array_of(std::unique_ptr<T[]> numbers, std::vector<py::ssize_t> shape) {
  const py::capsule owner(numbers.get(), [](void* data) { delete[] static_cast<T*>(data); });
  using Number = std::conditional_t<std::is_same_v<T, char>, uint8_t, T>;
  return py::array_t<Number>(std::move(shape), reinterpret_cast<Number*>(numbers.release()), owner);
}

// The result of `compute`, which runs while other threads of Python do.
template <typename F>
auto unlocked(const F& compute) {
  const py::gil_scoped_release released;
  return compute();
}

py::tuple read_vector_text(const Array<uint8_t>& data, int64_t dimension) {
  auto read = unlocked([&] { return elmo_fast::read_vector_text(text_of(data), dimension); });
  return py::make_tuple(
      array_of(std::move(read.matrix), {read.rows, dimension}), array_of(std::move(read.words), {read.rows, 2}),
      py::make_tuple(read.fault[0], read.fault[1], read.fault[2]));
}

py::array write_vector_text(const Array<uint8_t>& words, const Array<int64_t>& ends, const Array<float>& matrix) {
  if (matrix.ndim() != 2 || matrix.shape(0) != ends.size()) throw py::value_error("matrix must have a row for each of ends");
  auto text = unlocked([&] { return elmo_fast::write_vector_text(text_of(words), span_of(ends), span_of(matrix)); });
  return array_of(std::move(text.bytes), {text.size});
}

using elmo_fast::CooccurrenceCounter;
using Runs = std::vector<std::pair<Array<int64_t>, Array<int64_t>>>;

py::list count(CooccurrenceCounter& counter, const Array<int32_t>& numbers, int64_t begin, int64_t end) {
  auto runs = unlocked([&] { return counter.count(span_of(numbers), begin, end); });
  py::list found;
  for (auto& run : runs) found.append(py::make_tuple(array_of(std::move(run.keys), {run.size}), array_of(std::move(run.sums), {run.size})));
  return found;
}

py::tuple merge(const CooccurrenceCounter& counter, const Runs& runs, int64_t scale) {
  std::vector<elmo_fast::RunView> views;
  for (const auto& [keys, sums] : runs) views.push_back({span_of(keys), span_of(sums)});
  auto found = unlocked([&] { return counter.merge(std::move(views), scale); });
  return py::make_tuple(
      array_of(std::move(found.rows), {found.size}), array_of(std::move(found.columns), {found.size}),
      array_of(std::move(found.values), {found.size}));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "The kernels in C++: importing this implements torch.ops.elmo_fast.*; its functions are those that are no ops of tensors.";
  m.attr("SCHEMAS_DIGEST") = ELMO_FAST_SCHEMAS_DIGEST;

  m.def("isa", [] { return elmo_fast::isa().name; }, "Return the instruction set that products use.");
  m.def("isas", &elmo_fast::isa_names, "Return those that this CPU has, slowest first.");
  m.def("limit_isa", &elmo_fast::limit_isa, "name"_a, "Let products use this one from now on, for tests; \"\" takes the fastest again.");

  m.def(
      "digest", [](uintptr_t address, int64_t bytes) { return unlocked([&] { return elmo_fast::digest_of(reinterpret_cast<void*>(address), bytes); }); },
      "address"_a, "bytes"_a, "Return a number that stands for all bytes of this memory.");
  m.def(
      "sample", [](uintptr_t address, int64_t count, int64_t size) { return elmo_fast::sample_of(reinterpret_cast<void*>(address), count, size); },
      "address"_a, "count"_a, "size"_a, "Return a number that stands for 256 of the `count` numbers of `size` bytes in this memory.");

  m.def("fill_new_memory", &elmo_fast::fill_new_memory, "fill"_a, "Fill the memory of new tensors with NaN from now on, or no longer.");

  m.def(
      "read_vector_text", &read_vector_text, "data"_a.noconvert(), "dimension"_a,
      "Return the matrix of lines of a word and `dimension` numbers, the places [N, 2] of the words in `data`, and the number, begin and end of\n"
      "the first line that could not be read, or -1, 0, 0.");
  m.def(
      "write_vector_text", &write_vector_text, "words"_a.noconvert(), "ends"_a.noconvert(), "matrix"_a.noconvert(),
      "Return lines of a word, which ends at ends[i] in `words`, and the numbers of row i.");

  py::class_<CooccurrenceCounter>(m, "CooccurrenceCounter", "Counts how often words occur near each other.")
      .def(
          py::init([](const Array<int32_t>& table, const Array<int64_t>& weights, int64_t num_words, bool symmetric, int64_t most_cells,
                      int64_t threads) {
            return CooccurrenceCounter(span_of(table), span_of(weights), num_words, symmetric, most_cells, threads);
          }),
          "table"_a.noconvert(), "weights"_a.noconvert(), "num_words"_a, "symmetric"_a, "most_cells"_a, "threads"_a,
          "Take the word of each number (-1 between sentences, -2 left out), the weight of each distance, and of how many pairs of frequent words\n"
          "each thread may keep a sum.")
      .def(
          "count", &count, "numbers"_a.noconvert(), "begin"_a, "end"_a,
          "Count the pairs whose second word stands in numbers[begin:end]; return runs of the rare ones, sorted keys and their sums.")
      .def("merge", &merge, "runs"_a.noconvert(), "scale"_a, "Return the rows, columns and values of all that was counted, divided by `scale`.");
}
