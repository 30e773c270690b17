// char_cnn. Forward: words sorted by length, 32 side by side. The windows at one position of 32 words are the rows of a product
// whose stride is a word, so the convolution needs no copies; the maximum over positions runs in a tile and is written once.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "common/gemm.h"
#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast::char_cnn {
namespace {

// Words end in a run of one id: padding, whichever id it is. All windows that lie wholly in that tail are equal, so only windows
// that start before it, and one that starts with it, need computing.
struct Words {
  int64_t rows = 0, slots = 0;
  std::vector<int32_t> ids;    // [rows, slots]
  std::vector<int32_t> tails;  // per row, the first slot of its tail
  std::vector<int64_t> order;  // rows, the latest tail first
  int32_t tail_id(int64_t row) const { return ids[(row + 1) * slots - 1]; }
};

// One convolution: `filters` features from `feature` on, over windows of `width` slots.
struct Width {
  int64_t width, filters, feature;
  int64_t windows(int64_t slots) const { return slots - width + 1; }
};

// Reads ids [N, C] and checks that they lie in 0..characters-1.
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

// Raises unless embedding [characters, E] and every weight [n, E, k] have numbers of one dtype and 1 <= k <= C of ids [N, C].
void check_words(const Arguments& check, const Tensor& ids, const Tensor& embedding, TensorList weights) {
  check.tensor("ids", ids, kWhole, {kAny, kAny});
  check.tensor("embedding", embedding, kFloating, {kAny, kAny});
  check.tensors("weights", weights, embedding.scalar_type(), {kAny, embedding.size(1), kAny});
  check.need(!weights.empty(), "weights must hold at least one tensor; got none");
  for (const auto& weight : weights)
    check.need(
        weight.size(2) >= 1 && weight.size(2) <= ids.size(1), "the width of weights must be from 1 to ", ids.size(1),
        ", the slots of ids; got ", weight.size(2));
}

constexpr int64_t kWords = 32;  // words side by side

// 64 filters of one width.
struct Block {
  Width width;
  Packed filters;
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

template <typename T>
ELMO_MULTIVERSION void keep_larger(
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
void maximise(const Forward<T>& f, const Block& b, int64_t first, int64_t count, Scratch<T>& s) {
  const auto tail = [&](int64_t i) { return f.words.tails[f.words.order[first + i]]; };
  const int64_t positions = std::min<int64_t>(tail(0), b.width.windows(f.words.slots));
  int64_t active = count;
  for (int64_t t = 0; t < positions; ++t) {
    while (tail(active - 1) <= t) --active;
    const char* windows = static_cast<const char*>(s.operands.const_data_ptr()) + t * f.size();
    multiply_block<T>(b.filters, b.block, windows, f.words.slots * f.characters, active, t == 0 ? s.best : s.tile, kBlock, false);
    if (t == 0)
      std::fill_n(s.where, active * kBlock, 0);
    else
      keep_larger(s.tile, s.best, s.where, active * kBlock, static_cast<int32_t>(t));
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
      keep_larger(constant, best, where, kBlock, tail);
    }
  }
  activate(best, f.bias + b.feature, features + row * f.features + b.feature, b.count, f.tanh);
  if (winners != nullptr) std::copy_n(where, b.count, winners + row * f.features + b.feature);
}

// The products of one repeated character with every filter, for each character that some word ends in.
template <typename T>
void compute_constants(Forward<T>& f, ScalarType dtype, int64_t vocabulary) {
  f.constant_of.assign(vocabulary, -1);
  std::vector<int32_t> ends;
  for (int64_t row = 0; row < f.words.rows; ++row) {
    const int32_t id = f.words.tail_id(row);
    if (f.constant_of[id] >= 0) continue;
    f.constant_of[id] = static_cast<int32_t>(ends.size());
    ends.push_back(id);
  }
  const int64_t n = static_cast<int64_t>(ends.size()), columns = static_cast<int64_t>(f.blocks.size()) * kBlock;
  const Tensor windows = empty({n, f.most * f.characters}, f.table.scalar_type());
  for (int64_t i = 0; i < n * f.most; ++i)
    std::copy_n(
        static_cast<const char*>(f.table.const_data_ptr()) + ends[i / f.most] * f.size(), f.size(),
        static_cast<char*>(windows.mutable_data_ptr()) + i * f.size());
  f.constants = empty({n, columns}, dtype);
  for (size_t i = 0; i < f.blocks.size(); ++i)
    multiply_block<T>(
        f.blocks[i].filters, f.blocks[i].block, windows.const_data_ptr(), f.most * f.characters, n,
        f.constants.template mutable_data_ptr<T>() + static_cast<int64_t>(i) * kBlock, columns, false);
  for (const auto& block : f.blocks) release_kernels(block.filters);
}

template <typename T>
Forward<T> prepare(
    const Arguments& check, const Tensor& ids, const Tensor& embedding, TensorList weights, Operand operand, const Copies& packed) {
  Forward<T> f;
  f.words = read_words(ids, embedding.size(0));
  f.operand = operand;
  f.table = to_operand_rows(embedding, operand);
  f.characters = f.table.size(1);
  const auto widths = widths_of(weights);
  for (size_t i = 0; i < widths.size(); ++i) {
    const auto filters = packed_of(check, filters_layout(weights[i], operand), operand, packed, i);
    for (int64_t b = 0; b < filters.blocks(); ++b)
      f.blocks.push_back(
          {widths[i], filters, b, std::min(kBlock, widths[i].filters - b * kBlock), widths[i].feature + b * kBlock});
    f.features += widths[i].filters;
    f.most = std::max(f.most, widths[i].width);
  }
  return f;
}

template <typename T>
void run(const Forward<T>& f, T* features, int16_t* winners) {
  const int64_t groups = (f.words.rows + kWords - 1) / kWords, blocks = static_cast<int64_t>(f.blocks.size());
  parallel_for(groups * blocks, 1, [&](int64_t begin, int64_t end) {
    const auto s = std::make_unique<Scratch<T>>();
    s->operands = empty({kWords, f.words.slots, f.characters}, f.table.scalar_type());
    for (int64_t item = begin; item < end; ++item) {
      const int64_t group = item / blocks, first = group * kWords, count = std::min(kWords, f.words.rows - first);
      embed(f, group, *s);
      maximise(f, f.blocks[item % blocks], first, count, *s);
      for (int64_t i = 0; i < count; ++i) finish(f, item % blocks, f.words.order[first + i], i, features, winners, *s);
    }
    for (const auto& block : f.blocks) release_kernels(block.filters);
  });
}

template <typename T>
std::tuple<Tensor, std::vector<Tensor>> forward(
    const Arguments& check, const Tensor& ids, const Tensor& embedding, TensorList weights, TensorList biases, bool tanh, Operand operand,
    bool save, const Copies& packed) {
  auto f = prepare<T>(check, ids, embedding, weights, operand, packed);
  const auto bias = call("aten::cat", "", biases.vec(), int64_t{0});
  f.bias = bias.template const_data_ptr<T>(), f.tanh = tanh;
  auto features = empty({f.words.rows, f.features}, embedding.scalar_type());
  Tensor winners = empty({save ? f.words.rows : 0, f.features}, kShort);
  const std::vector<Tensor> saved(save ? 1 : 0, winners);
  if (features.numel() == 0) return {features, saved};
  compute_constants(f, embedding.scalar_type(), embedding.size(0));
  run(f, features.template mutable_data_ptr<T>(), save ? winners.template mutable_data_ptr<int16_t>() : nullptr);
  return {features, saved};
}

std::tuple<Tensor, std::vector<Tensor>> char_cnn(
    const Tensor& ids, const Tensor& embedding, TensorList weights, TensorList biases, const std::optional<Tensor>& count, bool tanh,
    const Name& precision, bool save, const Copies& packed) {
  const Arguments check("char_cnn");
  check.need(!count.has_value(), "count is of GPUs; the CPU's kernel computes all rows");
  check_words(check, ids, embedding, weights);
  check.need(biases.size() == weights.size(), "biases must be one per width, ", weights.size(), "; got ", biases.size());
  for (size_t i = 0; i < weights.size(); ++i) check.tensor("biases", biases[i], embedding.scalar_type(), {weights[i].size(0)});
  check.need(ids.size(1) <= std::numeric_limits<int16_t>::max(), "ids must have at most 32767 slots; got ", ids.size(1));
  const Operand operand = resolve_operand(precision, embedding.scalar_type());
  return by_type(embedding.scalar_type(), [&]<typename T>() {
    return forward<T>(check, ids, embedding, weights, biases, tanh, operand, save, packed);
  });
}

// char_cnn backward: each feature's gradient goes to the one window that won it. Sums run in an order that depends on the sizes
// alone, never on the number of threads: weights in parallel over features, the embedding over a fixed number of groups of words.

constexpr int64_t kFeatures = 16;  // features whose weight gradients stay in the first-level cache over all words
constexpr int64_t kGroups = 16;    // partial sums of the embedding's gradient
constexpr int64_t kRun = 32;       // words of one sum of a filter's terms; longer sums are sums of these, in double

// Arrays of one backward pass; gradients and rounded operands in T, one filter a row [width][E].
template <typename T>
struct Pass {
  Words words;
  int64_t size, features;           // E, F
  const T* gradient;                // [N, F], of the maxima
  const int16_t* winners;           // [N, F]
  const T* embedding;               // [characters, E], rounded
  const int32_t* ids(int64_t row) const { return words.ids.data() + row * words.slots; }
};

// target += scale * source over the E numbers of a character; where E is the published 16, as one vector, since a loop of known
// length is unrolled into single numbers before the compiler looks for vectors.
template <int64_t fixed, typename T>
ELMO_INLINE void add_scaled(T* __restrict target, const T* __restrict source, T scale, int64_t n) {
  if constexpr (fixed > 0) {
    typedef T Vector __attribute__((vector_size(fixed * sizeof(T)), aligned(sizeof(T)), may_alias));
    *reinterpret_cast<Vector*>(target) += scale * *reinterpret_cast<const Vector*>(source);
  } else {
#pragma GCC ivdep
    for (int64_t e = 0; e < n; ++e) target[e] += scale * source[e];
  }
}

// The terms of features begin to end-1 are added to part [end - begin, width, E] and bias [end - begin].
template <int64_t fixed, typename T>
ELMO_INLINE void weight_loop(
    const Pass<T>& p, const Width& w, int64_t first, int64_t last, int64_t begin, int64_t end, T* part, T* bias) {
  for (int64_t row = first; row < last; ++row) {
    const int32_t* ids = p.ids(row);
    for (int64_t f = begin; f < end; ++f) {
      const int64_t at = row * p.features + w.feature + f;
      const T g = p.gradient[at];
      if (g == T(0)) continue;
      bias[f - begin] += g;
      T* filter = part + (f - begin) * w.width * p.size;
      for (int64_t j = 0; j < w.width; ++j)
        add_scaled<fixed>(filter + j * p.size, p.embedding + ids[p.winners[at] + j] * p.size, g, p.size);
    }
  }
}

// slots: [C, E], zeros. The terms of a word's slot are summed there first, and slots in double: a single chain of all terms of a
// character rounds at the size of the whole, and padding has thousands of them in every word.
template <int64_t fixed, typename T>
ELMO_INLINE void embedding_loop(
    const Pass<T>& p, const Width& w, const T* filters, int64_t begin, int64_t end, T* slots, double* d_embedding) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t reach = 0;  // slots that any winning window of the word holds lie before it
    for (int64_t f = 0; f < w.filters; ++f) {
      const int64_t at = row * p.features + w.feature + f, first = p.winners[at];
      const T g = p.gradient[at];
      if (g == T(0)) continue;
      reach = std::max(reach, first + w.width);
      const T* filter = filters + f * w.width * p.size;
      for (int64_t j = 0; j < w.width; ++j) add_scaled<fixed>(slots + (first + j) * p.size, filter + j * p.size, g, p.size);
    }
    const int32_t* ids = p.ids(row);
    for (int64_t slot = 0; slot < reach; ++slot)
      for (int64_t e = 0; e < p.size; ++e) d_embedding[ids[slot] * p.size + e] += slots[slot * p.size + e];
    std::fill_n(slots, reach * p.size, T(0));
  }
}

// part, total: room for kFeatures filters and biases. A single chain of a thousand terms would round at the size of the whole.
template <typename T>
ELMO_MULTIVERSION void sum_weight_gradients(
    const Pass<T>& p, const Width& w, int64_t begin, int64_t end, T* part, double* total, T* d_weight, T* d_bias) {
  const int64_t features = end - begin, terms = features * w.width * p.size;
  std::fill_n(total, terms + features, 0.0);
  for (int64_t first = 0; first < p.words.rows; first += kRun) {
    const int64_t last = std::min(first + kRun, p.words.rows);
    std::fill_n(part, terms + features, T(0));
    if (p.size == 16)
      weight_loop<16>(p, w, first, last, begin, end, part, part + terms);
    else
      weight_loop<0>(p, w, first, last, begin, end, part, part + terms);
    for (int64_t i = 0; i < terms + features; ++i) total[i] += part[i];
  }
  for (int64_t f = 0; f < features; ++f) {
    d_bias[begin + f] = static_cast<T>(total[terms + f]);
    T* to = d_weight + (begin + f) * p.size * w.width;
    for (int64_t e = 0; e < p.size; ++e)
      for (int64_t j = 0; j < w.width; ++j) *to++ = static_cast<T>(total[(f * w.width + j) * p.size + e]);
  }
}

template <typename T>
ELMO_MULTIVERSION void add_embedding_gradients(
    const Pass<T>& p, const Width& w, const T* filters, int64_t begin, int64_t end, T* slots, double* d_embedding) {
  if (p.size == 16)
    embedding_loop<16>(p, w, filters, begin, end, slots, d_embedding);
  else
    embedding_loop<0>(p, w, filters, begin, end, slots, d_embedding);
}

// [n, E, width] -> rounded, [n, width, E].
Tensor filter_rows(const Tensor& weight, Operand operand) {
  return rounded_values(weight.transpose(1, 2).contiguous(), operand);
}

template <typename T>
Tensor embedding_gradient(const Pass<T>& p, const Tensor& embedding, TensorList weights, Operand operand) {
  const auto widths = widths_of(weights);
  std::vector<Tensor> filters;
  for (const auto& weight : weights) filters.push_back(filter_rows(weight, operand));
  const auto partial = zeros({kGroups, embedding.size(0), embedding.size(1)}, kDouble);
  double* sums = partial.mutable_data_ptr<double>();
  parallel_for(kGroups, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> slots(p.words.slots * p.size);
    for (int64_t group = begin; group < end; ++group)
      for (size_t i = 0; i < widths.size(); ++i)
        add_embedding_gradients<T>(
            p, widths[i], filters[i].template const_data_ptr<T>(), group * p.words.rows / kGroups, (group + 1) * p.words.rows / kGroups,
            slots.data(), sums + group * embedding.numel());
  });
  for (int64_t group = 1; group < kGroups; ++group)
    for (int64_t i = 0; i < embedding.numel(); ++i) sums[i] += sums[group * embedding.numel() + i];
  return partial[0].to(embedding.scalar_type());
}

template <typename T>
void weight_gradients(
    const Pass<T>& p, TensorList weights, std::vector<Tensor>& d_weights, std::vector<Tensor>& d_biases) {
  const ScalarType dtype = weights[0].scalar_type();
  for (const auto& w : widths_of(weights)) {
    const Tensor d_weight = empty({w.filters, p.size, w.width}, dtype), d_bias = empty({w.filters}, dtype);
    T *weight = d_weight.template mutable_data_ptr<T>(), *bias = d_bias.template mutable_data_ptr<T>();
    parallel_for((w.filters + kFeatures - 1) / kFeatures, 1, [&](int64_t begin, int64_t end) {
      const int64_t room = kFeatures * (w.width * p.size + 1);
      const Tensor part = empty({room}, dtype), total = empty({room}, kDouble);
      for (int64_t i = begin; i < end; ++i)
        sum_weight_gradients<T>(
            p, w, i * kFeatures, std::min(w.filters, (i + 1) * kFeatures), part.template mutable_data_ptr<T>(),
            total.mutable_data_ptr<double>(), weight, bias);
    });
    d_weights.push_back(d_weight), d_biases.push_back(d_bias);
  }
}

using Gradients = std::tuple<Tensor, std::vector<Tensor>, std::vector<Tensor>>;

template <typename T>
Gradients backward(
    const Tensor& gradient, const Tensor& winners, const Tensor& ids, const Tensor& embedding, TensorList weights,
    Operand operand, bool need_embedding, bool need_weights) {
  const auto table = rounded_values(embedding.contiguous(), operand);
  const Pass<T> p{
      read_words(ids, embedding.size(0)),
      embedding.size(1),
      gradient.size(1),
      gradient.template const_data_ptr<T>(),
      winners.const_data_ptr<int16_t>(),
      table.template const_data_ptr<T>()};
  Gradients result{empty({0}, embedding.scalar_type()), {}, {}};
  if (need_embedding) std::get<0>(result) = embedding_gradient(p, embedding, weights, operand);
  if (need_weights) weight_gradients(p, weights, std::get<1>(result), std::get<2>(result));
  return result;
}

// The gradient of the largest sums from the gradient of the features; NaN passes.
Tensor activation_backward(const Tensor& grad_any, const Tensor& features_any, bool tanh) {
  const Tensor grad = grad_any.contiguous(), features = features_any.contiguous(), passed = empty_like(grad);
  by_type(grad.scalar_type(), [&]<typename T>() {
    const auto *g = grad.const_data_ptr<T>(), *y = features.const_data_ptr<T>();
    auto* to = passed.mutable_data_ptr<T>();
    for (int64_t i = 0; i < grad.numel(); ++i) to[i] = tanh ? g[i] * (T(1) - y[i] * y[i]) : y[i] <= 0 ? T(0) : g[i];
  });
  return passed;
}

Gradients char_cnn_backward(
    const Tensor& grad, const Tensor& features, TensorList saved, const Tensor& ids, const Tensor& embedding, TensorList weights,
    TensorList /*biases*/, const std::optional<Tensor>& /*count*/, bool tanh, const Name& precision, bool need_embedding,
    bool need_weights) {
  const Arguments check("char_cnn_backward");
  check.saved(saved, 1);
  check_words(check, ids, embedding, weights);
  const Tensor winners = saved[0];
  const auto widths = widths_of(weights);
  const int64_t rows = ids.size(0), all = widths.back().feature + widths.back().filters;
  check.tensor("grad", grad, embedding.scalar_type(), {rows, all});
  check.tensor("features", features, embedding.scalar_type(), {rows, all});
  check.tensor("winners", winners, kShort, {rows, all});
  check.contiguous("winners", winners);
  for (const auto& w : widths) check.ids("winners", winners.narrow(1, w.feature, w.filters), w.windows(ids.size(1)));  // else others were read
  const Operand operand = resolve_operand(precision, embedding.scalar_type());
  const auto gradient = activation_backward(grad, features, tanh);
  return by_type(embedding.scalar_type(), [&]<typename T>() {
    return backward<T>(gradient, winners, ids, embedding, weights, operand, need_embedding, need_weights);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("char_cnn", TORCH_BOX(&char_cnn));
  m.impl("char_cnn_backward", TORCH_BOX(&char_cnn_backward));
}

}  // namespace elmo_fast::char_cnn

namespace elmo_fast {

// weight [n, E, k] as the product's right operand [k * padded(E), n]: a window of k embedded characters is one row of the left.
Layout filters_layout(const Tensor& weight, Operand operand) {
  const int64_t size = weight.size(1), width = weight.size(2);
  std::vector<int64_t> terms;
  for (int64_t j = 0; j < width; ++j)
    for (int64_t e = 0; e < padded(size, operand); ++e) terms.push_back(e < size ? e * width + j : -1);
  return {weight.contiguous().view({weight.size(0), size * width}).t(), {}, std::move(terms)};
}

}  // namespace elmo_fast
