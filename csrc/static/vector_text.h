// The lines of text files of word vectors: a word and its numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace elmo_fast {

struct VectorText {
  int64_t rows;
  std::unique_ptr<float[]> matrix;    // [rows, dimension]
  std::unique_ptr<int64_t[]> words;   // [rows, 2], where each word begins and ends
  int64_t fault[3];                   // number, begin and end of the first line that is no word and its numbers; -1 where there is none
};
VectorText read_vector_text(std::string_view text, int64_t dimension);

struct Text {
  std::unique_ptr<char[]> bytes;
  int64_t size;
};
// `ends` of the words in `words`, and as many rows of `matrix`.
Text write_vector_text(std::string_view words, std::span<const int64_t> ends, std::span<const float> matrix);

}  // namespace elmo_fast
