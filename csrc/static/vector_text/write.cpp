// write_vector_text: each thread writes a share of the rows, the shortest decimals that are read back as the same float32.

#include <algorithm>
#include <charconv>
#include <memory>
#include <vector>

#include "common/checks.h"
#include "common/parallel.h"

namespace elmo_fast {
namespace {

constexpr int64_t kLongest = 16;  // a blank and the longest of the shortest decimals, as "-1.17549435e-38"

void check(const Tensor& text, const Tensor& ends, const Tensor& matrix) {
  const Arguments check("write_vector_text");
  check.tensor("words", text, kByte, {kAny});
  check.tensor("matrix", matrix, kFloat, {kAny, kAny});
  check.tensor("ends", ends, kLong, {matrix.size(0)});
  check.contiguous("words", text);
  check.contiguous("ends", ends);
  check.contiguous("matrix", matrix);
  const auto* end = ends.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < ends.numel(); ++r)
    check.need(end[r] >= (r ? end[r - 1] : 0) && end[r] <= text.numel(), "ends must rise from 0 to ", text.numel(), "; got ", end[r]);
}

Tensor write_vector_text(const Tensor& text, const Tensor& ends, const Tensor& matrix) {
  check(text, ends, matrix);
  const auto* words = reinterpret_cast<const char*>(text.const_data_ptr<uint8_t>());
  const auto* end = ends.const_data_ptr<int64_t>();
  const auto* numbers = matrix.const_data_ptr<float>();
  const int64_t rows = matrix.size(0), dimension = matrix.size(1);
  const int64_t parts = std::clamp<int64_t>(num_threads(), 1, std::max<int64_t>(rows, 1));
  struct Part {
    std::unique_ptr<char[]> text;
    int64_t size = 0;
  };
  std::vector<Part> written(parts);
  parallel_for(parts, 1, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; ++part) {
      const int64_t first = rows * part / parts, last = rows * (part + 1) / parts;
      if (first == last) continue;
      const int64_t bytes = end[last - 1] - (first ? end[first - 1] : 0);
      Part& out = written[part];
      out.text = std::make_unique_for_overwrite<char[]>(bytes + (last - first) * (dimension * kLongest + 1));
      char* at = out.text.get();
      for (int64_t r = first; r < last; ++r) {
        const int64_t begin = r ? end[r - 1] : 0;
        at = std::copy(words + begin, words + end[r], at);
        for (int64_t i = 0; i < dimension; ++i) {
          *at++ = ' ';
          at = std::to_chars(at, at + kLongest, numbers[r * dimension + i]).ptr;
        }
        *at++ = '\n';
      }
      out.size = at - out.text.get();
    }
  });
  int64_t total = 0;
  for (const auto& part : written) total += part.size;
  Tensor result = empty({total}, Options{kByte});
  auto* at = reinterpret_cast<char*>(result.mutable_data_ptr<uint8_t>());
  for (const auto& part : written) at = std::copy_n(part.text.get(), part.size, at);
  return result;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("write_vector_text", ELMO_BOX(write_vector_text)); }

}  // namespace elmo_fast
