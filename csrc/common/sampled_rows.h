// What output layers share: products with rows of the table, chunk by chunk, the gradients from their slopes, and accidental hits.
#pragma once


#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/checks.h"
#include "common/gemm.h"

namespace elmo_fast::sampled_rows {

// Raises unless these are hidden [N, D], the rows [N + S, D], offsets and ids [N + S] of targets and samples, and a bound above 0.
void check_samples(
    const Arguments& check, const Tensor& hidden, const Tensor& rows, const Tensor& offsets, const Tensor& ids,
    int64_t chunk_bytes);
// The same for what backward is given: numbers of the N rows, and what forward kept, [N, S] or [0, S].
void check_saved(
    const Arguments& check, const Tensor& hidden, const Tensor& rows,
    std::initializer_list<std::pair<const char*, Tensor>> of_rows, const char* name, const Tensor& kept);

// A right operand used for several products. Exact operands go to torch's product: both sides are used for one step only, so
// packing a float32 table would cost a pass over it for nothing. Rounded ones are packed, as torch would round the result too.
class RightOperand {
 public:
  RightOperand(Tensor w, Operand operand);
  // out[M, N] (+)= x[M, K] · W (+ bias[N]); x of any strides, out contiguous.
  void multiply(const Tensor& x, const Tensor& out, bool accumulate, const Tensor& bias = {}) const;

 private:
  Tensor weight_;
  Operand operand_;
  Packed packed_;
};

// From the slopes of the losses to their logits to gradients. A loss has slope g · p to the logit of each word of a block, p within
// [0, 1]; those to the target are added at the end, exactly.
class Gradients {
 public:
  // grad: g [N], of the whole batch: 16-bit operands hold p times a power of two, and g over another.
  Gradients(const Tensor& grad, Operand operand);
  // p[n, S], g[n] and values[n, D] (hidden, rounded) of some rows against a block `rows` [S, D] of the table:
  // d_hidden[n, D] (+)= p · rows, d_rows[S, D] (+)= pᵀ · g values, d_offsets[S] += pᵀ g. The first two are finished by `finish`; the third
  // is double: a chunk may be one row, and a single chain of N additions rounds at the size of the whole.
  void add(
      const Tensor& p, const Tensor& g, const Tensor& values, const RightOperand& rows, const Tensor& d_hidden,
      bool add_hidden, const Tensor& d_rows, bool add_rows, const Tensor& d_offsets) const;
  // d_hidden <- g d_hidden + d_true · true_rows, d_rows scaled back.
  void finish(
      const Tensor& g, const Tensor& d_true, const Tensor& true_rows, const Tensor& d_hidden,
      const Tensor& d_rows) const;

 private:
  Operand operand_;
  double lift_ = 1.0, scale_ = 1.0;
};

// The logits of N rows and S samples, chunk by chunk: finish(first row, logits [n, S], true_logits [n], keeps) makes losses of them and, where
// all N rows fit into the bound and `keep`, what backward wants in their place. Returns that, [N, S], else [0, S].
Tensor logits_of_samples(
    const Tensor& hidden, const Tensor& rows, const Tensor& offsets, const std::string& precision, int64_t chunk_bytes, bool keep,
    const std::function<void(int64_t, const Tensor&, const Tensor&, bool)>& finish);

// The gradients of N targets' and S samples' rows, offsets and of hidden: d_hidden [N, D], d_rows [N + S, D], d_offsets [N + S].
// g [N]: what multiplies p; d_true [N]: the slopes to the targets. `kept`: p [N, S], or [0, S]: then logits are computed again and
// `to_slopes(first row, logits)` makes them p.
std::tuple<Tensor, Tensor, Tensor> gradients_of_samples(
    const Tensor& g, const Tensor& d_true, const Tensor& hidden, const Tensor& rows, const Tensor& offsets,
    const Tensor& kept, const std::string& precision, int64_t chunk_bytes,
    const std::function<void(int64_t, const Tensor&)>& to_slopes);

// Where a target is among the samples.
class AccidentalHits {
 public:
  AccidentalHits(const int64_t* samples, int64_t count);
  template <typename Visit>
  void each(int64_t target, const Visit& visit) const {
    auto hit = std::lower_bound(places_.begin(), places_.end(), std::pair<int64_t, int64_t>{target, 0});
    for (; hit != places_.end() && hit->first == target; ++hit) visit(hit->second);
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> places_;  // (word, position), sorted
};

}  // namespace elmo_fast::sampled_rows
