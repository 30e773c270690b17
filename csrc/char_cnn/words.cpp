#include "char_cnn/words.h"

#include <algorithm>
#include <numeric>

namespace elmo_fast::char_cnn {

Words read_words(const Tensor& ids, int64_t characters) {
  Words words;
  words.rows = ids.size(0), words.slots = ids.size(1);
  const auto wide = ids.to(kLong).contiguous();
  const auto* source = wide.const_data_ptr<int64_t>();
  words.ids.resize(words.rows * words.slots);
  for (int64_t i = 0; i < words.rows * words.slots; ++i) {
    ELMO_CHECK_INDEX(
        source[i] >= 0 && source[i] < characters, "char_cnn: ids must lie from 0 to ", characters - 1, ", the rows of embedding; got ",
        source[i]);
    words.ids[i] = static_cast<int32_t>(source[i]);
  }
  words.tails.resize(words.rows);
  for (int64_t row = 0; row < words.rows; ++row) {
    const int32_t* slot = words.ids.data() + row * words.slots;
    int64_t tail = words.slots - 1;
    while (tail > 0 && slot[tail - 1] == slot[words.slots - 1]) --tail;
    words.tails[row] = static_cast<int32_t>(tail);
  }
  words.order.resize(words.rows);
  std::iota(words.order.begin(), words.order.end(), 0);
  std::stable_sort(words.order.begin(), words.order.end(), [&](int64_t a, int64_t b) { return words.tails[a] > words.tails[b]; });
  return words;
}

std::vector<Width> widths_of(TensorList weights) {
  std::vector<Width> widths;
  int64_t feature = 0;
  for (const auto& weight : weights) {
    widths.push_back({weight.size(2), weight.size(0), feature});
    feature += weight.size(0);
  }
  return widths;
}

int64_t widest(const std::vector<Width>& widths) {
  int64_t most = 0;
  for (const auto& width : widths) most = std::max(most, width.width);
  return most;
}

std::shared_ptr<const Packed> packed_filters(const Tensor& weight, Operand operand, const Caching& caching, size_t number) {
  return packed_of(weight, "char_cnn", operand, caching, number, [&] {
    const int64_t size = weight.size(1), width = weight.size(2);
    std::vector<int64_t> terms;
    for (int64_t j = 0; j < width; ++j)
      for (int64_t e = 0; e < padded(size, operand); ++e) terms.push_back(e < size ? e * width + j : -1);
    return pack(weight.reshape({weight.size(0), size * width}).t(), operand, {}, terms);
  });
}

void check_words(const Arguments& check, const Tensor& ids, const Tensor& embedding, TensorList weights) {
  check.whole("ids", ids, {kAny, kAny});
  check.floating("embedding", embedding, {kAny, kAny});
  check.tensors("weights", weights, embedding.scalar_type(), {kAny, embedding.size(1), kAny});
  check.need(!weights.empty(), "weights must hold at least one tensor; got none");
  for (const auto& weight : weights)
    check.need(
        weight.size(2) >= 1 && weight.size(2) <= ids.size(1), "the width of weights must be from 1 to ", ids.size(1),
        ", the slots of ids; got ", weight.size(2));
}

Tensor rounded_values(const Tensor& x, std::string_view precision) {
  if (precision == "float32") return x;
  return x.to(precision == "bfloat16" ? kBFloat16 : kHalf).to(x.scalar_type());
}

}  // namespace elmo_fast::char_cnn
