// char_cnn backward: each feature's gradient goes to the one window that won it. Sums run in an order that depends on the sizes
// alone, never on the number of threads: weights in parallel over features, the embedding over a fixed number of groups of words.

#include <algorithm>

#include "char_cnn/words.h"
#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast::char_cnn {
namespace {

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
Tensor filter_rows(const Tensor& weight, std::string_view precision) {
  return rounded_values(weight.permute({0, 2, 1}).contiguous(), precision);
}

template <typename T>
Tensor embedding_gradient(const Pass<T>& p, const Tensor& embedding, TensorList weights, std::string_view precision) {
  const auto widths = widths_of(weights);
  std::vector<Tensor> filters;
  for (const auto& weight : weights) filters.push_back(filter_rows(weight, precision));
  const auto partial = zeros({kGroups, embedding.size(0), embedding.size(1)}, embedding.options().dtype(kDouble));
  double* sums = partial.mutable_data_ptr<double>();
  parallel_for(kGroups, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> slots(p.words.slots * p.size);
    for (int64_t group = begin; group < end; ++group)
      for (size_t i = 0; i < widths.size(); ++i)
        add_embedding_gradients<T>(
            p, widths[i], filters[i].template const_data_ptr<T>(), group * p.words.rows / kGroups, (group + 1) * p.words.rows / kGroups,
            slots.data(), sums + group * embedding.numel());
  });
  for (int64_t group = 1; group < kGroups; ++group) partial[0].add_(partial[group]);
  Tensor sum = empty({embedding.size(0), embedding.size(1)}, embedding.options());
  return sum.copy_(partial[0]);
}

template <typename T>
void weight_gradients(
    const Pass<T>& p, TensorList weights, std::vector<Tensor>& d_weights, std::vector<Tensor>& d_biases) {
  const Options options = weights[0].options();
  for (const auto& w : widths_of(weights)) {
    const Tensor d_weight = empty({w.filters, p.size, w.width}, options), d_bias = empty({w.filters}, options);
    T *weight = d_weight.template mutable_data_ptr<T>(), *bias = d_bias.template mutable_data_ptr<T>();
    parallel_for((w.filters + kFeatures - 1) / kFeatures, 1, [&](int64_t begin, int64_t end) {
      const int64_t room = kFeatures * (w.width * p.size + 1);
      const Tensor part = empty({room}, options), total = empty({room}, options.dtype(kDouble));
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
    std::string_view precision, bool need_embedding, bool need_weights) {
  const auto table = rounded_values(embedding.contiguous(), precision);
  const Pass<T> p{
      read_words(ids, embedding.size(0)),
      embedding.size(1),
      gradient.size(1),
      gradient.template const_data_ptr<T>(),
      winners.const_data_ptr<int16_t>(),
      table.template const_data_ptr<T>()};
  Gradients result{empty({0}, embedding.options()), {}, {}};
  if (need_embedding) std::get<0>(result) = embedding_gradient(p, embedding, weights, precision);
  if (need_weights) weight_gradients(p, weights, std::get<1>(result), std::get<2>(result));
  return result;
}

// Winners too: a window that leaves its word would be read.
void check(
    const Tensor& grad, const Tensor& features, const Tensor& winners, const Tensor& ids, const Tensor& embedding,
    TensorList weights) {
  const Arguments check("char_cnn_backward");
  check_words(check, ids, embedding, weights);
  const auto widths = widths_of(weights);
  const int64_t rows = ids.size(0), all = widths.back().feature + widths.back().filters;
  check.tensor("grad", grad, embedding.scalar_type(), {rows, all});
  check.tensor("features", features, embedding.scalar_type(), {rows, all});
  check.need(winners.sizes() == features.sizes(), "the forward pass was told to save nothing");
  check.tensor("winners", winners, kShort, {rows, all});
  check.contiguous("winners", winners);
  for (const auto& w : widths) check.ids("winners", winners.narrow(1, w.feature, w.filters), w.windows(ids.size(1)));
}

// The gradient of max(x, 0) from its output; NaN passes.
Tensor relu_backward(const Tensor& grad_any, const Tensor& features_any) {
  const Tensor grad = grad_any.contiguous(), features = features_any.contiguous(), passed = empty_like(grad);
  ELMO_DISPATCH_FLOATING(grad.scalar_type(), [&] {
    const auto *g = grad.const_data_ptr<scalar_t>(), *y = features.const_data_ptr<scalar_t>();
    auto* to = passed.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < grad.numel(); ++i) to[i] = y[i] <= 0 ? scalar_t(0) : g[i];
  });
  return passed;
}

Gradients char_cnn_backward(
    const Tensor& grad, const Tensor& features, const Tensor& winners, const Tensor& ids, const Tensor& embedding,
    TensorList weights, bool tanh, const Name& precision, bool need_embedding, bool need_weights) {
  check(grad, features, winners, ids, embedding, weights);
  resolve_operand(precision, embedding.scalar_type());
  const auto gradient = (tanh ? tanh_backward(grad, features) : relu_backward(grad, features)).contiguous();
  return embedding.scalar_type() == kDouble
             ? backward<double>(gradient, winners, ids, embedding, weights, precision, need_embedding, need_weights)
             : backward<float>(gradient, winners, ids, embedding, weights, precision, need_embedding, need_weights);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("char_cnn_backward", ELMO_BOX(char_cnn_backward)); }

}  // namespace elmo_fast::char_cnn
