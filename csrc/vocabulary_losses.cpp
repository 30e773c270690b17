// full_softmax, sampled_softmax and negative_sampling: losses over words whose scores are products with rows of a table. Rows of hidden and
// words are taken block by block, so that a block of scores fits into a bound; the gradients are two more products with the slopes.
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/gemm.h"
#include "common/sums.h"
#include "common/tensor.h"

namespace elmo_fast {
namespace {

template <typename T>
constexpr T kNoScore = -std::numeric_limits<T>::infinity();  // of words that are left out

// Bytes of a packed block of a table: as many are read again from a cache, not from memory. Where all words are needed at once, more.
constexpr int64_t kPackedBytes = int64_t(4) << 20;

// The scores of hidden [N, D] against a table [W, D] of words with offsets [W], `rows` rows and `words` words at a time.
struct Scores {
  Tensor hidden, table, offsets;
  Operand operand;
  int64_t rows, words;

  Tensor memory() const { return empty({rows * words}, hidden.scalar_type()); }
};

// Calls f(first row, first word, scores [n, w]) of each block; the scores lie in `memory`.
template <typename T, typename F>
void each_block(const Scores& s, const Tensor& memory, const F& f) {
  int64_t word = 0;
  do {
    const int64_t w = std::min(s.words, s.table.size(0) - word);
    const Packed table = pack(s.table.narrow(0, word, w).t(), s.operand);
    for (int64_t row = 0; row < s.hidden.size(0); row += s.rows) {
      const int64_t n = std::min(s.rows, s.hidden.size(0) - row);
      const Tensor scores = memory.narrow(0, 0, n * w).view({n, w});
      multiply_rows(table, s.hidden.narrow(0, row, n), scores, false, s.offsets.narrow(0, word, w));
      f(row, word, scores);
    }
  } while ((word += s.words) < s.table.size(0));
}

// The power of two just above the largest |g|, so that g / scale fits every operand; 1 where there is none.
template <typename T>
double scale_of(const Tensor& grad) {
  double largest = 0.0;
  const T* g = grad.const_data_ptr<T>();
  for (int64_t i = 0; i < grad.numel(); ++i) {
    if (std::isnan(g[i])) largest = std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(static_cast<double>(g[i])));
  }
  return std::isfinite(largest) && largest > 0 ? std::exp2(std::ceil(std::log2(largest))) : 1.0;
}

// Adds the gradients of hidden and table, and returns those of the offsets in double (a block may be one row, and a single chain of N
// additions rounds at the size of the whole). A loss has slope g · p to the score of each word of the table, p within [0, 1], and d_true to
// its target's score, whose row is in true_rows [N, D]. `kept`: p, as one block; if undefined, scores are computed again and
// to_slopes(first row, first word, scores) turns them into p. 16-bit operands hold p times a power of two, and g over another: probabilities
// reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
template <typename T, typename ToSlopes>
Tensor add_gradients(
    const Scores& s, const Tensor& g, const Tensor& d_true, const Tensor& values, const Tensor& true_rows, const Tensor& kept,
    const ToSlopes& to_slopes, const Tensor& d_hidden, const Tensor& d_table) {
  const bool exact = is_exact(s.operand);
  const double lift = exact ? 1.0 : 16384.0, scale = exact ? 1.0 : scale_of<T>(g);
  const Tensor d_offsets = zeros({s.table.size(0)}, kDouble), memory = kept.defined() ? kept.view({kept.numel()}) : s.memory();
  std::vector<Packed> weighted;  // of each block of rows
  for (int64_t row = 0; row < s.hidden.size(0); row += s.rows) {
    const int64_t n = std::min(s.rows, s.hidden.size(0) - row);
    weighted.push_back(pack(values.narrow(0, row, n).mul(g.narrow(0, row, n).mul(1.0 / scale).view({n, 1})), s.operand));
  }
  int64_t word = 0;
  do {
    const int64_t w = std::min(s.words, s.table.size(0) - word);
    const Tensor table = s.table.narrow(0, word, w), d_words = d_table.narrow(0, word, w);
    const Packed scores_of = kept.defined() ? Packed() : pack(table.t(), s.operand), hidden_of = pack(table, s.operand);
    for (int64_t row = 0; row < s.hidden.size(0); row += s.rows) {
      const int64_t n = std::min(s.rows, s.hidden.size(0) - row);
      const Tensor p = memory.narrow(0, kept.defined() ? row * w : 0, n * w).view({n, w}), g_of_rows = g.narrow(0, row, n);
      if (!kept.defined()) {
        multiply_rows(scores_of, s.hidden.narrow(0, row, n), p, false, s.offsets.narrow(0, word, w));
        to_slopes(row, word, p);
      }
      add_column_sums(p, g_of_rows, d_offsets.narrow(0, word, w));
      const Tensor lifted = exact ? p : p.mul(lift);
      multiply_rows(hidden_of, lifted, d_hidden.narrow(0, row, n), word > 0);
      multiply_rows(weighted[row / s.rows], lifted.t(), d_words, row > 0);
    }
  } while ((word += s.words) < s.table.size(0));
  const int64_t count = g.numel();
  d_hidden.copy_(torch::stable::subtract(d_hidden.mul(g.mul(1.0 / lift).view({count, 1})), d_true.view({count, 1}).mul(true_rows), -1.0));
  if (!exact) d_table.copy_(d_table.mul(scale / lift));
  return d_offsets;
}

// The rows of a table.
Tensor rows_of(const Tensor& table, const Tensor& index) { return call("aten::index_select", "", table, int64_t{0}, index); }

// The slope of a softmax's loss to its target's score is p - 1, times g.
template <typename T>
Tensor true_slopes(const Tensor& losses_any, const Tensor& grad) {
  const Tensor losses = losses_any.contiguous(), slopes = empty_like(losses);
  const T *loss = losses.const_data_ptr<T>(), *g = grad.const_data_ptr<T>();
  T* slope = slopes.mutable_data_ptr<T>();
  for (int64_t i = 0; i < losses.numel(); ++i) slope[i] = std::expm1(-loss[i]) * g[i];
  return slopes;
}

// The product of each row of hidden [N, D], rounded, with its target's row in `rows` [N, D].
template <typename T>
std::vector<T> products_with(const Tensor& rows_any, const Tensor& hidden_any, Operand operand) {
  const Tensor hidden = rounded_values(hidden_any, operand), rows = rows_any.contiguous();
  const int64_t size = hidden.size(1);
  const T *h = hidden.const_data_ptr<T>(), *w = rows.const_data_ptr<T>();
  std::vector<T> products(hidden.size(0));
  parallel_for(hidden.size(0), grain_of(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) products[i] = dot(h + i * size, w + i * size, size);
  });
  return products;
}

// Calls f(row, its scores [words]) for each row of a block, in parallel.
template <typename T, typename F>
void each_row(const Tensor& scores, const F& f) {
  const int64_t words = scores.size(1);
  T* data = scores.mutable_data_ptr<T>();
  parallel_for(scores.size(0), grain_of(8 * words), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i, data + i * words);
  });
}

// ---- full_softmax: per row, its largest score and a sum of exponentials, in double.

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

struct FullTable {
  Scores scores;
  Tensor targets;
  Tensor true_rows() const { return rounded_values(rows_of(scores.table, targets), scores.operand); }
};

FullTable checked_table(
    const char* op, const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias, const Name& precision,
    int64_t chunk_bytes) {
  const Arguments check(op);
  check.tensor("hidden", hidden, kFloating, {kAny, kAny});
  check.tensor("targets", targets, kLong, {hidden.size(0)});
  check.tensor("weight", weight, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.tensor("bias", bias, hidden.scalar_type(), {weight.size(0)});
  check.need(weight.size(0) > 0, "weight must hold at least one word; got none");
  check.need(chunk_bytes > 0, "chunk_bytes must be at least 1; got ", chunk_bytes);
  check.ids("targets", targets, weight.size(0));
  constexpr int64_t kMostRows = 1024;
  const int64_t size = hidden.element_size(), rows = std::clamp<int64_t>(std::min(hidden.size(0), chunk_bytes / size), 1, kMostRows);
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const int64_t most = std::max(kBlock, kPackedBytes / (packed_size(operand) * std::max<int64_t>(1, hidden.size(1))));
  const int64_t words = std::clamp<int64_t>(std::min(most, chunk_bytes / (size * rows)), 1, weight.size(0));
  return {{hidden.contiguous(), weight, bias.contiguous(), operand, rows, words}, targets.contiguous()};
}

struct Sum {
  double largest = kNoScore<double>, sum = 0;  // sum of exp(score - largest), the target left out
};

// Adds the words of a row of scores; the target, if it is one of them, is number `target`.
template <typename T>
void add_words(T* row, int64_t words, int64_t target, Sum& sum) {
  if (target >= 0 && target < words) row[target] = kNoScore<T>;
  const T largest = largest_of<T>(row, words, static_cast<T>(sum.largest));
  if (largest == kNoScore<T>) {  // the target alone, or NaN, which no comparison finds
    if (std::any_of(row, row + words, [](T x) { return std::isnan(x); })) sum.sum = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const double before = sum.sum * std::exp(sum.largest - static_cast<double>(largest));
  sum = {static_cast<double>(largest), before + static_cast<double>(exponentials<T>(row, words, largest))};
}

// Losses and what backward needs.
using Losses = std::tuple<Tensor, std::vector<Tensor>>;

Losses full_softmax(
    const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias, const Name& precision, int64_t chunk_bytes, bool save) {
  const FullTable w = checked_table("full_softmax", hidden, targets, weight, bias, precision, chunk_bytes);
  const int64_t count = hidden.size(0);
  const Tensor losses = empty({count}, hidden.scalar_type()), log_sums = empty({count, 2}, hidden.scalar_type());
  const std::vector<Tensor> saved(save ? 1 : 0, log_sums);
  if (count == 0) return {losses, saved};
  const auto* target = w.targets.const_data_ptr<int64_t>();
  std::vector<Sum> sums(count);
  by_type(hidden.scalar_type(), [&]<typename T>() {
    const auto products = products_with<T>(w.true_rows(), w.scores.hidden, w.scores.operand);
    const T* offset = w.scores.offsets.const_data_ptr<T>();
    each_block<T>(w.scores, w.scores.memory(), [&](int64_t first, int64_t word, const Tensor& scores) {
      each_row<T>(scores, [&](int64_t i, T* row) { add_words<T>(row, scores.size(1), target[first + i] - word, sums[first + i]); });
    });
    T *loss = losses.mutable_data_ptr<T>(), *log_sum = log_sums.mutable_data_ptr<T>();
    for (int64_t i = 0; i < count; ++i) {
      const double t = products[i] + offset[target[i]], largest = std::max(t, sums[i].largest);
      const LogSum<double> found = log_sum_of<double>(t, largest, sums[i].sum * std::exp(sums[i].largest - largest));
      loss[i] = static_cast<T>(found.loss);
      log_sum[2 * i] = static_cast<T>(largest);  // exact: one of the scores
      log_sum[2 * i + 1] = static_cast<T>(found.log_sum);
    }
  });
  return {losses, saved};
}

Gradients full_softmax_backward(
    const Tensor& grad_any, const Tensor& losses, TensorList saved, const Tensor& hidden, const Tensor& targets, const Tensor& weight,
    const Tensor& bias, const Name& precision, int64_t chunk_bytes) {
  const Arguments check("full_softmax_backward");
  check.saved(saved, 1);
  const Tensor log_sums = saved[0];
  const FullTable w = checked_table("full_softmax_backward", hidden, targets, weight, bias, precision, chunk_bytes);
  const int64_t count = hidden.size(0), size = hidden.size(1);
  check.tensor("grad", grad_any, hidden.scalar_type(), {count});
  check.tensor("losses", losses, hidden.scalar_type(), {count});
  check.tensor("log_sums", log_sums, hidden.scalar_type(), {count, 2});
  check.contiguous("log_sums", log_sums);
  const Tensor d_hidden = empty({count, size}, hidden.scalar_type()), d_weight = empty(weight.sizes(), hidden.scalar_type());
  if (count == 0) return {d_hidden, d_weight.zero_(), zeros(bias.sizes(), bias.scalar_type())};
  const Tensor grad = grad_any.contiguous(), values = rounded_values(w.scores.hidden, w.scores.operand);
  const auto* target = w.targets.const_data_ptr<int64_t>();
  return by_type(hidden.scalar_type(), [&]<typename T>() -> Gradients {
    const Tensor d_true = true_slopes<T>(losses, grad);
    const T* log_sum = log_sums.const_data_ptr<T>();
    const auto to_slopes = [&](int64_t first, int64_t word, const Tensor& scores) {  // the target's is added at the end, exactly
      each_row<T>(scores, [&](int64_t i, T* row) {
        const int64_t n = first + i, words = scores.size(1);
        probabilities<T>(row, words, log_sum[2 * n], log_sum[2 * n + 1]);
        if (target[n] >= word && target[n] < word + words) row[target[n] - word] = T(0);
      });
    };
    const Tensor d_bias = add_gradients<T>(w.scores, grad, d_true, values, w.true_rows(), {}, to_slopes, d_hidden, d_weight);
    const Tensor d_rows = values.mul(d_true.view({count, 1}));
    const T *row = d_rows.const_data_ptr<T>(), *slope = d_true.const_data_ptr<T>();
    for (int64_t i = 0; i < count; ++i, row += size) {  // a target's own gradient, in the order of the batch
      T* to = d_weight.mutable_data_ptr<T>() + target[i] * size;
      for (int64_t j = 0; j < size; ++j) to[j] += row[j];
      d_bias.mutable_data_ptr<double>()[target[i]] += slope[i];
    }
    return {d_hidden, d_weight, d_bias.to(hidden.scalar_type())};
  });
}

// ---- sampled_softmax and negative_sampling: the rows of N targets, then of S samples, chunk by chunk of hidden's rows.

struct Sampled {
  int64_t count, samples;
  Tensor rows, offsets, ids;  // of targets and samples
  Scores scores;              // of the samples
  std::vector<std::pair<int64_t, int64_t>> hits;  // (word, position) of the samples, sorted; empty where hits count

  Sampled(
      const Arguments& check, const Tensor& hidden, const Tensor& rows, const Tensor& offsets, const Tensor& ids, const Name& precision,
      int64_t chunk_bytes, bool count_hits)
      : count(hidden.size(0)), samples(rows.size(0) - count), rows(rows), offsets(offsets), ids(ids.contiguous()) {
    check.need(chunk_bytes > 0, "chunk_bytes must be at least 1; got ", chunk_bytes);
    const Operand operand = resolve_operand(precision, hidden.scalar_type());
    const int64_t chunk = std::max<int64_t>(1, std::min(count, chunk_bytes / std::max<int64_t>(1, samples * hidden.element_size())));
    scores = {hidden.contiguous(), rows.narrow(0, count, samples), offsets.narrow(0, count, samples).contiguous(), operand, chunk, samples};
    if (count_hits) return;
    for (int64_t i = 0; i < samples; ++i) hits.emplace_back(this->ids.const_data_ptr<int64_t>()[count + i], i);
    std::sort(hits.begin(), hits.end());
  }

  Tensor true_rows() const { return rounded_values(rows.narrow(0, 0, count), scores.operand); }
  Tensor new_numbers(IntArrayRef sizes) const { return empty(sizes, scores.hidden.scalar_type()); }

  // Sets row[i] to `value` where sample i is the target of row `n`.
  template <typename T>
  void set_hits(int64_t n, T* row, T value) const {
    const int64_t target = ids.const_data_ptr<int64_t>()[n];
    auto hit = std::lower_bound(hits.begin(), hits.end(), std::pair<int64_t, int64_t>{target, 0});
    for (; hit != hits.end() && hit->first == target; ++hit) row[hit->second] = value;
  }
};

// The words of N targets, then of S samples.
Tensor words_of(const Arguments& check, const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias, const Tensor& samples) {
  check.tensor("hidden", hidden, kFloating, {kAny, kAny});
  check.tensor("weight", weight, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.tensor("bias", bias, hidden.scalar_type(), {weight.size(0)});
  check.tensor("targets", targets, kLong, {hidden.size(0)});
  check.tensor("samples", samples, kLong, {kAny});
  check.ids("targets", targets, weight.size(0));
  check.ids("samples", samples, weight.size(0));
  const Tensor ids = empty({targets.size(0) + samples.size(0)}, targets.scalar_type());
  ids.narrow(0, 0, targets.size(0)).copy_(targets);
  ids.narrow(0, targets.size(0), samples.size(0)).copy_(samples);
  return ids;
}

// bias - term of these words: the term is ln Q, or ln(K P).
template <typename T, typename Term>
Tensor offsets_of(const Tensor& bias_any, const Tensor& ids, const Term& term) {
  const Tensor bias = bias_any.contiguous(), offsets = empty(ids.sizes(), bias.scalar_type());
  const T* of_words = bias.const_data_ptr<T>();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) offsets.mutable_data_ptr<T>()[i] = of_words[id[i]] - term(i, id[i]);
  return offsets;
}

// What forward saves: numbers of each row, [N, S] or [0, S], and rows and offsets of the words.
Sampled saved_sample(
    const Arguments& check, const Tensor& hidden, TensorList saved, const Tensor& ids, const Name& precision, int64_t chunk_bytes, bool count_hits) {
  check.saved(saved, 4);
  check.tensor("hidden", hidden, kFloating, {kAny, kAny});
  const auto dtype = hidden.scalar_type();
  const int64_t count = hidden.size(0), words = ids.numel();
  check.tensor("ids", ids, kLong, {words});
  check.need(words >= count, "ids must begin with one for each of hidden's ", count, " rows; got ", words);
  check.tensor("saved[2]", saved[2], dtype, {words, hidden.size(1)});
  check.tensor("saved[3]", saved[3], dtype, {words});
  const Tensor kept = saved[1];
  check.tensor("saved[1]", kept, dtype, {kept.dim() > 0 && kept.size(0) == 0 ? 0 : count, words - count});
  return Sampled(check, hidden, saved[2], saved[3], ids, precision, chunk_bytes, count_hits);
}

// Calls finish(n, scores of row n, score of its target, keeps), which turns them into a loss and, if all rows fit into the bound and `keep` is
// true, replaces them by what backward needs. Returns that, [N, S], else [0, S].
template <typename T, typename Finish>
Tensor finish_rows(const Sampled& s, bool keep, const Finish& finish) {
  const bool keeps = keep && s.count <= s.scores.rows;
  const Tensor kept = s.new_numbers({keeps ? s.count : 0, s.samples});
  if (s.count == 0) return kept;
  const auto products = products_with<T>(s.true_rows(), s.scores.hidden, s.scores.operand);
  const T* offset = s.offsets.const_data_ptr<T>();
  each_block<T>(s.scores, keeps ? kept.view({kept.numel()}) : s.scores.memory(), [&](int64_t first, int64_t, const Tensor& scores) {
    each_row<T>(scores, [&](int64_t i, T* row) {
      s.set_hits(first + i, row, kNoScore<T>);
      finish(first + i, row, products[first + i] + offset[first + i], keeps);
    });
  });
  return kept;
}

// The gradients of hidden, rows [N + S, D] and offsets. to_slopes(n, row) converts the scores of row n if none were saved.
template <typename T, typename ToSlopes>
Gradients gradients_of(const Sampled& s, const Tensor& g, const Tensor& d_true, const Tensor& kept, const ToSlopes& to_slopes) {
  const Tensor d_hidden = s.new_numbers(s.scores.hidden.sizes()), d_rows = s.new_numbers(s.rows.sizes());
  const Tensor d_offsets = s.new_numbers(s.offsets.sizes());
  if (s.count == 0) return {d_hidden, d_rows.zero_(), d_offsets.zero_()};
  const Tensor values = rounded_values(s.scores.hidden, s.scores.operand);
  d_rows.narrow(0, 0, s.count).copy_(values.mul(d_true.view({s.count, 1})));
  d_offsets.narrow(0, 0, s.count).copy_(d_true);
  const auto of_block = [&](int64_t first, int64_t, const Tensor& scores) {
    each_row<T>(scores, [&](int64_t i, T* row) {
      to_slopes(first + i, row);
      s.set_hits(first + i, row, T(0));
    });
  };
  const Tensor d_samples = add_gradients<T>(
      s.scores, g, d_true, values, s.true_rows(), kept.size(0) == s.count ? kept : Tensor(), of_block, d_hidden,
      d_rows.narrow(0, s.count, s.samples));
  d_offsets.narrow(0, s.count, s.samples).copy_(d_samples);
  return {d_hidden, d_rows, d_offsets};
}

// Losses, words and what backward needs.
using SampledLosses = std::tuple<Tensor, Tensor, std::vector<Tensor>>;

SampledLosses sampled_softmax(
    const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias, const Tensor& samples, const Tensor& /*tries*/,
    const Name& /*correction*/, const std::optional<Tensor>& log_expected, bool /*sparse*/, int64_t chunk_bytes, const Name& precision, bool save) {
  const Arguments check("sampled_softmax");
  const Tensor ids = words_of(check, hidden, targets, weight, bias, samples);
  check.need(log_expected.has_value(), "the CPU's kernel takes ln Q of all words as log_expected");
  check.tensor("log_expected", *log_expected, hidden.scalar_type(), ids.sizes());
  return by_type(hidden.scalar_type(), [&]<typename T>() -> SampledLosses {
    const Tensor expected = log_expected->contiguous();
    const Tensor offsets = offsets_of<T>(bias, ids, [&](int64_t i, int64_t) { return expected.const_data_ptr<T>()[i]; });
    const Sampled s(check, hidden, rows_of(weight, ids), offsets, ids, precision, chunk_bytes, false);
    const Tensor losses = s.new_numbers({s.count}), log_sums = s.new_numbers({s.count, 2});
    T *loss = losses.mutable_data_ptr<T>(), *log_sum = log_sums.mutable_data_ptr<T>();
    const Tensor probabilities = finish_rows<T>(s, save, [&](int64_t n, T* row, T true_score, bool keeps) {
      const T largest = largest_of<T>(row, s.samples, true_score), sum = exponentials<T>(row, s.samples, largest);
      const LogSum<T> found = log_sum_of<T>(true_score, largest, sum);
      loss[n] = found.loss, log_sum[2 * n] = largest, log_sum[2 * n + 1] = found.log_sum;
      if (keeps) scale<T>(row, s.samples, T(1) / (sum + std::exp(true_score - largest)));
    });
    if (!save) return {losses, ids, {}};
    return {losses, ids, {log_sums, probabilities, s.rows, offsets}};
  });
}

Gradients sampled_softmax_backward(
    const Tensor& grad_any, const Tensor& losses, const Tensor& ids, TensorList saved, const Tensor& hidden, const Tensor& /*weight*/,
    bool /*sparse*/, int64_t chunk_bytes, const Name& precision) {
  const Arguments check("sampled_softmax_backward");
  const Sampled s = saved_sample(check, hidden, saved, ids, precision, chunk_bytes, false);
  check.tensor("grad", grad_any, hidden.scalar_type(), {s.count});
  check.tensor("losses", losses, hidden.scalar_type(), {s.count});
  check.tensor("saved[0]", saved[0], hidden.scalar_type(), {s.count, 2});
  const Tensor log_sums = saved[0].contiguous(), grad = grad_any.contiguous();
  return by_type(hidden.scalar_type(), [&]<typename T>() {
    const T* log_sum = log_sums.const_data_ptr<T>();
    return gradients_of<T>(s, grad, true_slopes<T>(losses, grad), saved[1].contiguous(), [&](int64_t n, T* row) {
      probabilities<T>(row, s.samples, log_sum[2 * n], log_sum[2 * n + 1]);
    });
  });
}

// ---- negative_sampling: of a row of scores, the sum of ln(1 + e^x) and its slopes σ(x), from one exponential.

constexpr int kLanes = 32, kSteps = 64;  // 64 factors of at most 2: no product leaves a float's range

template <typename T>
ELMO_INLINE T decay_of(T x) {  // e^-|x|
  return x == kNoScore<T> ? T(0) : exp_of(x < 0 ? x : -x);
}

template <typename T>
ELMO_INLINE T slope_of(T x, T e) {
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), and a sum of logarithms is the logarithm of a product: P = prod (1 + e) - 1 is carried, whose
// digits a small e does not lose, and the logarithm is taken once for kSteps factors.
template <typename T>
ELMO_INLINE T block_sum(T* x, int64_t n) {
  T positive[kLanes] = {}, product[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const T each = x[i + j], e = decay_of(each);
      positive[j] += each > 0 ? each : T(0);
      product[j] = product[j] + e * (T(1) + product[j]);
      x[i + j] = slope_of(each, e);
    }
  }
  double sum = 0;
  for (; i < n; ++i) {
    const T each = x[i], e = decay_of(each);
    sum += (each > 0 ? each : T(0)) + std::log1p(static_cast<double>(e));
    x[i] = slope_of(each, e);
  }
  for (int j = 0; j < kLanes; ++j) sum += positive[j] + std::log1p(static_cast<double>(product[j]));
  return static_cast<T>(sum);
}

// x[n] <- σ(x); returns the sum of ln(1 + e^x), to which -infinity adds nothing.
template <typename T>
ELMO_MULTIVERSION T softplus_sum(T* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += kLanes * kSteps) sum += block_sum(x + i, n - i < kLanes * kSteps ? n - i : kLanes * kSteps);
  return static_cast<T>(sum);
}

SampledLosses negative_sampling(
    const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& bias, const Tensor& samples,
    const std::optional<Tensor>& log_noise, double negatives, bool /*sparse*/, int64_t chunk_bytes, const Name& precision, bool save) {
  const Arguments check("negative_sampling");
  const Tensor ids = words_of(check, hidden, targets, weight, bias, samples);
  check.tensor("log_noise", log_noise, hidden.scalar_type(), {weight.size(0)});
  check.need(samples.numel() > 0, "samples must hold at least one word; got none");
  return by_type(hidden.scalar_type(), [&]<typename T>() -> SampledLosses {
    const Tensor noise = log_noise.has_value() ? log_noise->contiguous() : Tensor();
    const T log_negatives = static_cast<T>(std::log(negatives)), share = static_cast<T>(negatives / static_cast<double>(samples.numel()));
    const Tensor offsets = offsets_of<T>(
        bias, ids, [&](int64_t, int64_t word) { return noise.defined() ? noise.const_data_ptr<T>()[word] + log_negatives : T(0); });
    const Sampled s(check, hidden, rows_of(weight, ids), offsets, ids, precision, chunk_bytes, noise.defined());
    const Tensor losses = s.new_numbers({s.count}), d_true = s.new_numbers({s.count});
    T *loss = losses.mutable_data_ptr<T>(), *slope = d_true.mutable_data_ptr<T>();
    const Tensor slopes = finish_rows<T>(s, save, [&](int64_t n, T* row, T score, bool /*keeps*/) {
      const T sum = softplus_sum(row, s.samples), e = std::exp(-std::abs(score));
      loss[n] = ((score < 0 ? -score : T(0)) + std::log1p(e)) + share * sum;
      slope[n] = -slope_of(-score, e);
    });
    if (!save) return {losses, ids, {}};
    return {losses, ids, {d_true, slopes, s.rows, offsets}};
  });
}

Gradients negative_sampling_backward(
    const Tensor& grad, const Tensor& ids, TensorList saved, const Tensor& hidden, const Tensor& /*weight*/,
    const std::optional<Tensor>& log_noise, double negatives, bool /*sparse*/, int64_t chunk_bytes, const Name& precision) {
  const Arguments check("negative_sampling_backward");
  const Sampled s = saved_sample(check, hidden, saved, ids, precision, chunk_bytes, log_noise.has_value());
  check.tensor("grad", grad, hidden.scalar_type(), {s.count});
  check.tensor("saved[0]", saved[0], hidden.scalar_type(), {s.count});
  check.need(s.samples > 0, "samples must hold at least one word; got none");
  const double share = negatives / static_cast<double>(s.samples);
  return by_type(hidden.scalar_type(), [&]<typename T>() {
    return gradients_of<T>(s, grad.mul(share).contiguous(), saved[0].mul(grad), saved[1].contiguous(), [&](int64_t, T* row) {
      softplus_sum(row, s.samples);
    });
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("full_softmax", TORCH_BOX(&full_softmax));
  m.impl("full_softmax_backward", TORCH_BOX(&full_softmax_backward));
  m.impl("sampled_softmax", TORCH_BOX(&sampled_softmax));
  m.impl("sampled_softmax_backward", TORCH_BOX(&sampled_softmax_backward));
  m.impl("negative_sampling", TORCH_BOX(&negative_sampling));
  m.impl("negative_sampling_backward", TORCH_BOX(&negative_sampling_backward));
}

}  // namespace elmo_fast
