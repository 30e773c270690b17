// What both passes of char_cnn need to know of a batch of words and of its convolutions.
#pragma once


#include <memory>
#include <vector>

#include "common/checks.h"
#include "common/packed.h"

namespace elmo_fast::char_cnn {

// Words end in a run of one id: padding, whichever id it is. All windows that lie wholly in that tail are equal, so only windows
// that start before it, and one that starts with it, need computing.
struct Words {
  int64_t rows = 0, slots = 0;
  std::vector<int32_t> ids;    // [rows, slots]
  std::vector<int32_t> tails;  // per row, the first slot of its tail
  std::vector<int64_t> order;  // rows, the latest tail first
  int32_t tail_id(int64_t row) const { return ids[(row + 1) * slots - 1]; }
};

// Reads ids [N, C] and checks that they lie in 0..characters-1.
Words read_words(const Tensor& ids, int64_t characters);

// One convolution: `filters` features from `feature` on, over windows of `width` slots.
struct Width {
  int64_t width, filters, feature;
  int64_t windows(int64_t slots) const { return slots - width + 1; }
};
std::vector<Width> widths_of(TensorList weights);
int64_t widest(const std::vector<Width>& widths);

// weight [n, E, k] as the product's right operand [k * padded(E), n]: a window of k embedded characters is one row of the left.
std::shared_ptr<const Packed> packed_filters(const Tensor& weight, Operand operand, const Caching& caching, size_t number);

// Raises unless embedding [characters, E] and every weight [n, E, k] have numbers of one dtype and 1 <= k <= C of ids [N, C].
void check_words(const Arguments& check, const Tensor& ids, const Tensor& embedding, TensorList weights);

// Numbers rounded to `precision`, kept in the tensor's own dtype.
Tensor rounded_values(const Tensor& x, std::string_view precision);

}  // namespace elmo_fast::char_cnn
