// Reading: each thread parses a share of the lines. Writing: each thread writes a share of the rows, the shortest decimals
// that are read back as the same float32.
#include "static/vector_text.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/parallel.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

constexpr int64_t kLongest = 16;  // a blank and the longest of the shortest decimals, as "-1.17549435e-38"
constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

bool is_blank(char c) { return c == ' ' || c == '\t'; }
unsigned digit_of(char c) { return static_cast<unsigned>(static_cast<unsigned char>(c)) - '0'; }  // 10 or more: no digit

// Up to 19 digits fit 64 bits, with more the mantissa wraps; `digits` counts all, leading zeros too.
const char* read_digits(const char* at, const char* end, uint64_t& mantissa, int& digits) {
  for (unsigned digit; at < end && (digit = digit_of(*at)) < 10; ++at, ++digits) mantissa = 10 * mantissa + digit;
  return at;
}

// The number that begins at `at`; returns where it ends, or nullptr where there is no finite number of float32 up to a blank or `end`.
const char* read_number(const char* at, const char* end, float& value) {
  const bool minus = at < end && *at == '-';
  if (at < end && (*at == '-' || *at == '+')) ++at;
  const char* const begin = at;
  uint64_t mantissa = 0;
  int digits = 0, whole;
  at = read_digits(at, end, mantissa, digits);
  whole = digits;
  if (at < end && *at == '.') at = read_digits(at + 1, end, mantissa, digits);
  if (digits == 0) return nullptr;
  if (at == end || is_blank(*at)) {
    // A mantissa below 2^53 and a power of ten up to 19 are exact doubles, so that their quotient is rounded once. To float32 it is
    // rounded again, which is wrong at most where the double lies in the middle of two floats (all are 0 or normal: 1e-19 or more).
    if (digits <= 19 && mantissa >> 53 == 0) {
      const double exact = static_cast<double>(mantissa) / kPowersOfTen[digits - whole];
      if ((std::bit_cast<uint64_t>(exact) & 0x1fffffffu) != 0x10000000u) {
        value = static_cast<float>(minus ? -exact : exact);
        return at;
      }
    }
  } else if (*at != 'e' && *at != 'E') {
    return nullptr;
  }
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range) {  // too large, or so small that it is 0
    if (at < end && !is_blank(*at) ? at + 1 == end || at[1] != '-' : whole > 38) return nullptr;
    value = 0;
  } else if (error != std::errc()) {
    return nullptr;
  }
  if ((stop != end && !is_blank(*stop)) || !std::isfinite(value)) return nullptr;
  value = minus ? -value : value;
  return stop;
}

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

// End of the word; nullptr for a line that is not a word and `count` numbers.
const char* read_line(const Line& line, int64_t count, float* row) {
  if (line.begin == line.end || is_blank(*line.begin)) return nullptr;
  const char* word = line.begin;
  while (word < line.end && !is_blank(*word)) ++word;
  if (read_row(word, line.end, count, row)) return word;
  // A word may contain blanks: its end is searched from the right, and it must not end with something that is a number itself.
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

}  // namespace

VectorText read_vector_text(std::string_view text, int64_t dimension) {
  ELMO_CHECK_VALUE(dimension >= 1, "dimension must be at least 1; got ", dimension);
  const char* const begin = text.data();
  const std::vector<Line> lines = lines_of(begin, begin + text.size());
  const auto rows = static_cast<int64_t>(lines.size());
  VectorText read{
      rows, std::make_unique_for_overwrite<float[]>(rows * dimension), std::make_unique_for_overwrite<int64_t[]>(2 * rows), {-1, 0, 0}};
  std::atomic<int64_t> fault{rows};
  parallel_for(rows, 64, [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const char* const end = read_line(lines[r], dimension, &read.matrix[r * dimension]);
      if (end == nullptr) {
        int64_t first = fault;
        while (r < first && !fault.compare_exchange_weak(first, r)) {}
        return;
      }
      read.words[2 * r] = lines[r].begin - begin;
      read.words[2 * r + 1] = end - begin;
    }
  });
  if (const int64_t bad = fault; bad < rows) {
    read.fault[0] = bad;
    read.fault[1] = lines[bad].begin - begin;
    read.fault[2] = lines[bad].end - begin;
  }
  return read;
}

Text write_vector_text(std::string_view words, std::span<const int64_t> ends, std::span<const float> matrix) {
  const auto rows = static_cast<int64_t>(ends.size());
  const int64_t dimension = rows ? static_cast<int64_t>(matrix.size()) / rows : 0;
  for (int64_t r = 0; r < rows; ++r)
    ELMO_CHECK_VALUE(
        ends[r] >= (r ? ends[r - 1] : 0) && ends[r] <= static_cast<int64_t>(words.size()), "ends must rise from 0 to ", words.size(), "; got ",
        ends[r]);
  const int64_t parts = std::clamp<int64_t>(num_threads(), 1, std::max<int64_t>(rows, 1));
  std::vector<Text> written(parts);
  parallel_for(parts, 1, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; ++part) {
      const int64_t first = rows * part / parts, last = rows * (part + 1) / parts;
      if (first == last) continue;
      const int64_t bytes = ends[last - 1] - (first ? ends[first - 1] : 0);
      Text& out = written[part];
      out.bytes = std::make_unique_for_overwrite<char[]>(bytes + (last - first) * (dimension * kLongest + 1));
      char* at = out.bytes.get();
      for (int64_t r = first; r < last; ++r) {
        const int64_t begin = r ? ends[r - 1] : 0;
        at = std::copy_n(words.data() + begin, ends[r] - begin, at);
        for (int64_t i = 0; i < dimension; ++i) {
          *at++ = ' ';
          at = std::to_chars(at, at + kLongest, matrix[r * dimension + i]).ptr;
        }
        *at++ = '\n';
      }
      out.size = at - out.bytes.get();
    }
  });
  int64_t total = 0;
  for (const Text& part : written) total += part.size;
  Text text{std::make_unique_for_overwrite<char[]>(total), total};
  char* at = text.bytes.get();
  for (const Text& part : written) at = std::copy_n(part.bytes.get(), part.size, at);
  return text;
}

}  // namespace elmo_fast
