// char_cnn forward: words sorted by length, 32 side by side. The windows at one position of 32 words are the rows of a product
// whose stride is a word, so the convolution needs no copies; the maximum over positions runs in a tile and is written once.

#include <algorithm>

#include "char_cnn/words.h"
#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast::char_cnn {
namespace {

constexpr int64_t kWords = 32;  // words side by side

// 64 filters of one width.
struct Block {
  Width width;
  std::shared_ptr<const Packed> filters;
  int64_t block, count, feature;
};

template <typename T>
struct Forward {
  Words words;
  Operand operand;
  Tensor table;      // [characters, padded(E)] operands
  Tensor constants;  // [distinct tail ids, blocks * 64]: the window wholly in the tail
  std::vector<int32_t> constant_of;  // per character: its row of constants, -1 where no word ends in it
  std::vector<Block> blocks;
  int64_t characters = 0, features = 0, most = 0;  // padded(E), F, the widest width
  const T* bias = nullptr;
  bool tanh = false;
  int64_t size() const { return characters * element_size(operand); }  // bytes of one embedded character
};

template <typename T>
struct Scratch {
  Tensor operands;  // [kWords, C, padded(E)]: the words at hand
  int64_t group = -1;
  alignas(64) T tile[kWords * kBlock];
  alignas(64) T best[kWords * kBlock];
  alignas(64) int32_t where[kWords * kBlock];
};

// A comparison with NaN is false, hence the second test: a NaN wins and stays.
template <typename T>
ELMO_MULTIVERSION void keep_larger(const T* __restrict tile, T* __restrict best, int64_t n) {
  for (int64_t i = 0; i < n; ++i) best[i] = (tile[i] > best[i]) | (tile[i] != tile[i]) ? tile[i] : best[i];
}

template <typename T>
ELMO_MULTIVERSION void keep_larger_and_where(
    const T* __restrict tile, T* __restrict best, int32_t* __restrict where, int64_t n, int32_t position) {
  for (int64_t i = 0; i < n; ++i) {
    const bool larger = !(tile[i] <= best[i]) & (best[i] == best[i]);  // the first NaN stays
    best[i] = larger ? tile[i] : best[i];
    where[i] = larger ? position : where[i];
  }
}

template <typename T>
ELMO_MULTIVERSION void activate(const T* __restrict best, const T* __restrict bias, T* __restrict out, int64_t n, bool tanh) {
  if (tanh) {
    for (int64_t i = 0; i < n; ++i) out[i] = tanh_of(best[i] + bias[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const T value = best[i] + bias[i];
      out[i] = value < T(0) ? T(0) : value;
    }
  }
}

// Embeds the words of a group, as far as any window reaches.
template <typename T>
void embed(const Forward<T>& f, int64_t group, Scratch<T>& s) {
  if (s.group == group) return;
  s.group = group;
  const int64_t first = group * kWords, count = std::min(kWords, f.words.rows - first), slots = f.words.slots;
  const int64_t reach = std::min<int64_t>(slots, f.words.tails[f.words.order[first]] + f.most), size = f.size();
  const auto* table = static_cast<const char*>(f.table.const_data_ptr());
  auto* to = static_cast<char*>(s.operands.mutable_data_ptr());
  for (int64_t i = 0; i < count; ++i) {
    const int32_t* ids = f.words.ids.data() + f.words.order[first + i] * slots;
    for (int64_t slot = 0; slot < reach; ++slot) std::copy_n(table + ids[slot] * size, size, to + (i * slots + slot) * size);
  }
}

// The maximum over the windows that start before the tails, for one group of words and 64 filters, in s.best and s.where.
template <typename T>
void maximise(const Forward<T>& f, const Block& b, int64_t first, int64_t count, bool save, Scratch<T>& s) {
  const auto tail = [&](int64_t i) { return f.words.tails[f.words.order[first + i]]; };
  const int64_t positions = std::min<int64_t>(tail(0), b.width.windows(f.words.slots));
  int64_t active = count;
  for (int64_t t = 0; t < positions; ++t) {
    while (tail(active - 1) <= t) --active;
    const char* windows = static_cast<const char*>(s.operands.const_data_ptr()) + t * f.size();
    multiply_block<T>(*b.filters, b.block, windows, f.words.slots * f.characters, active, t == 0 ? s.best : s.tile, kBlock, false);
    if (t == 0)
      std::fill_n(s.where, active * kBlock, 0);
    else if (save)
      keep_larger_and_where(s.tile, s.best, s.where, active * kBlock, static_cast<int32_t>(t));
    else
      keep_larger(s.tile, s.best, active * kBlock);
  }
}

// Compares with the window wholly in the tail, adds the bias, activates and stores word i of the group.
template <typename T>
void finish(const Forward<T>& f, int64_t index, int64_t row, int64_t i, T* features, int16_t* winners, Scratch<T>& s) {
  const Block& b = f.blocks[index];
  T* best = s.best + i * kBlock;
  int32_t* where = s.where + i * kBlock;
  const int32_t tail = f.words.tails[row];
  if (tail < b.width.windows(f.words.slots)) {
    const T* constant = f.constants.template const_data_ptr<T>() +
        (f.constant_of[f.words.tail_id(row)] * static_cast<int64_t>(f.blocks.size()) + index) * kBlock;
    if (tail == 0) {
      std::copy_n(constant, kBlock, best);
      std::fill_n(where, kBlock, 0);
    } else {
      keep_larger_and_where(constant, best, where, kBlock, tail);
    }
  }
  activate(best, f.bias + b.feature, features + row * f.features + b.feature, b.count, f.tanh);
  if (winners != nullptr) std::copy_n(where, b.count, winners + row * f.features + b.feature);
}

// The products of one repeated character with every filter, for each character that some word ends in.
template <typename T>
void compute_constants(Forward<T>& f, const Options& options, int64_t vocabulary) {
  f.constant_of.assign(vocabulary, -1);
  std::vector<int32_t> ends;
  for (int64_t row = 0; row < f.words.rows; ++row) {
    const int32_t id = f.words.tail_id(row);
    if (f.constant_of[id] >= 0) continue;
    f.constant_of[id] = static_cast<int32_t>(ends.size());
    ends.push_back(id);
  }
  const int64_t n = static_cast<int64_t>(ends.size()), columns = static_cast<int64_t>(f.blocks.size()) * kBlock;
  const Tensor windows = empty({n, f.most * f.characters}, f.table.options());
  for (int64_t i = 0; i < n * f.most; ++i)
    std::copy_n(
        static_cast<const char*>(f.table.const_data_ptr()) + ends[i / f.most] * f.size(), f.size(),
        static_cast<char*>(windows.mutable_data_ptr()) + i * f.size());
  f.constants = empty({n, columns}, options);
  for (size_t i = 0; i < f.blocks.size(); ++i)
    multiply_block<T>(
        *f.blocks[i].filters, f.blocks[i].block, windows.const_data_ptr(), f.most * f.characters, n,
        f.constants.template mutable_data_ptr<T>() + static_cast<int64_t>(i) * kBlock, columns, false);
  for (const auto& block : f.blocks) release_kernels(*block.filters);
}

template <typename T>
Forward<T> prepare(const Tensor& ids, const Tensor& embedding, TensorList weights, Operand operand, const Caching& caching) {
  Forward<T> f;
  f.words = read_words(ids, embedding.size(0));
  f.operand = operand;
  f.table = to_operand_rows(embedding, operand);
  f.characters = f.table.size(1);
  const auto widths = widths_of(weights);
  f.most = widest(widths);
  for (size_t i = 0; i < widths.size(); ++i) {
    const auto filters = packed_filters(weights[i], operand, caching, i);
    for (int64_t b = 0; b < filters->blocks(); ++b)
      f.blocks.push_back(
          {widths[i], filters, b, std::min(kBlock, widths[i].filters - b * kBlock), widths[i].feature + b * kBlock});
    f.features += widths[i].filters;
  }
  return f;
}

template <typename T>
void run(const Forward<T>& f, T* features, int16_t* winners) {
  const int64_t groups = (f.words.rows + kWords - 1) / kWords, blocks = static_cast<int64_t>(f.blocks.size());
  parallel_for(groups * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto s = std::make_unique<Scratch<T>>();
    s->operands = empty({kWords, f.words.slots, f.characters}, f.table.options());
    for (int64_t item = begin; item < end; ++item) {
      const int64_t group = item / blocks, first = group * kWords, count = std::min(kWords, f.words.rows - first);
      embed(f, group, *s);
      maximise(f, f.blocks[item % blocks], first, count, winners != nullptr, *s);
      for (int64_t i = 0; i < count; ++i) finish(f, item % blocks, f.words.order[first + i], i, features, winners, *s);
    }
    for (const auto& block : f.blocks) release_kernels(*block.filters);
  });
}

template <typename T>
std::tuple<Tensor, Tensor> forward(
    const Tensor& ids, const Tensor& embedding, TensorList weights, TensorList biases, bool tanh, Operand operand,
    bool save, const Caching& caching) {
  auto f = prepare<T>(ids, embedding, weights, operand, caching);
  const auto bias = cat(biases);
  f.bias = bias.template const_data_ptr<T>(), f.tanh = tanh;
  auto features = empty({f.words.rows, f.features}, embedding.options());
  Tensor winners = empty({save ? f.words.rows : 0, f.features}, embedding.options().dtype(kShort));
  if (features.numel() == 0) return {features, winners};
  compute_constants(f, embedding.options(), embedding.size(0));
  run(f, features.template mutable_data_ptr<T>(), save ? winners.template mutable_data_ptr<int16_t>() : nullptr);
  return {features, winners};
}

std::tuple<Tensor, Tensor> char_cnn(
    const Tensor& ids, const Tensor& embedding, TensorList weights, TensorList biases, bool tanh,
    const Name& precision, bool save, std::vector<int64_t> stamps) {
  const Arguments check("char_cnn");
  check_words(check, ids, embedding, weights);
  check.need(biases.size() == weights.size(), "biases must be one per width, ", weights.size(), "; got ", biases.size());
  for (size_t i = 0; i < weights.size(); ++i) check.tensor("biases", biases[i], embedding.scalar_type(), {weights[i].size(0)});
  check.need(ids.size(1) <= std::numeric_limits<int16_t>::max(), "ids must have at most 32767 slots; got ", ids.size(1));
  const Operand operand = resolve_operand(precision, embedding.scalar_type());
  const auto of = operand == Operand::Float64 ? &forward<double> : &forward<float>;
  return of(ids, embedding, weights, biases, tanh, operand, save, {std::move(stamps), save});
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("char_cnn", ELMO_BOX(char_cnn)); }

}  // namespace elmo_fast::char_cnn
