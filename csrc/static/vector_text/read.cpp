// read_vector_text: lines of a word and its numbers; each thread parses a share of the lines. Floor: about 10 ns a number.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "common/checks.h"
#include "common/parallel.h"
#include "static/vector_text/number.h"

namespace elmo_fast {
namespace {

// The bytes of a word, and of its line without the blanks and the \r at its end.
struct Line {
  const char *begin, *end;
};

std::vector<Line> lines_of(const char* at, const char* end) {
  std::vector<Line> lines;
  while (at < end) {
    const auto* stop = static_cast<const char*>(std::memchr(at, '\n', end - at));
    const char* last = stop ? stop : end;
    const char* next = stop ? stop + 1 : end;
    if (last > at && last[-1] == '\r') --last;
    while (last > at && is_blank(last[-1])) --last;
    lines.push_back({at, last});
    at = next;
  }
  while (!lines.empty() && lines.back().begin == lines.back().end) lines.pop_back();
  return lines;
}

// `count` numbers, each after blanks, that end where the line does.
bool read_row(const char* at, const char* end, int64_t count, float* row) {
  for (int64_t i = 0; i < count; ++i) {
    if (at >= end || !is_blank(*at)) return false;
    while (at < end && is_blank(*at)) ++at;
    at = read_number(at, end, row[i]);
    if (at == nullptr) return false;
  }
  return at == end;
}

// Where the word ends; nullptr for a line that is not a word and `count` numbers.
const char* read_line(const Line& line, int64_t count, float* row) {
  if (line.begin == line.end || is_blank(*line.begin)) return nullptr;
  const char* word = line.begin;
  while (word < line.end && !is_blank(*word)) ++word;
  if (read_row(word, line.end, count, row)) return word;
  // A word may hold blanks: its end is found from the right, and it must not end with what is a number itself.
  word = line.end;
  for (int64_t i = 0; i < count; ++i) {
    while (word > line.begin && !is_blank(word[-1])) --word;
    while (word > line.begin && is_blank(word[-1])) --word;
  }
  if (word == line.begin || !read_row(word, line.end, count, row)) return nullptr;
  const char* field = word;
  while (field > line.begin && !is_blank(field[-1])) --field;
  float number;
  return field > line.begin && read_number(field, word, number) == word ? nullptr : word;
}

std::tuple<Tensor, Tensor, Tensor> read_vector_text(const Tensor& data, int64_t dimension) {
  Arguments("read_vector_text").tensor("data", data, kByte, {kAny});
  Arguments("read_vector_text").need(dimension > 0, "dimension must be at least 1; got ", dimension);
  const Tensor text = data.contiguous();
  const char* const begin = reinterpret_cast<const char*>(text.const_data_ptr<uint8_t>());
  const std::vector<Line> lines = lines_of(begin, begin + text.numel());
  const auto rows = static_cast<int64_t>(lines.size());
  Tensor words = empty({rows, 2}, Options{kLong});
  Tensor matrix = empty({rows, dimension}, Options{kFloat});
  auto* place = words.mutable_data_ptr<int64_t>();
  auto* numbers = matrix.mutable_data_ptr<float>();
  std::atomic<int64_t> fault{rows};
  parallel_for(rows, 64, [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const char* const end = read_line(lines[r], dimension, numbers + r * dimension);
      if (end == nullptr) {
        int64_t first = fault;
        while (r < first && !fault.compare_exchange_weak(first, r)) {}
        return;
      }
      place[2 * r] = lines[r].begin - begin;
      place[2 * r + 1] = end - begin;
    }
  });
  const bool none = fault == rows;
  Tensor where = empty({3}, Options{kLong});
  auto* out = where.mutable_data_ptr<int64_t>();
  out[0] = none ? -1 : fault.load();
  out[1] = none ? 0 : lines[fault].begin - begin;
  out[2] = none ? 0 : lines[fault].end - begin;
  return {matrix, words, where};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("read_vector_text", ELMO_BOX(read_vector_text)); }

}  // namespace elmo_fast
