#include "common/sampled_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/sums.h"

namespace elmo_fast::sampled_rows {
void check_samples(
    const Arguments& check, const Tensor& hidden, const Tensor& rows, const Tensor& offsets, const Tensor& ids,
    int64_t chunk_bytes) {
  check.floating("hidden", hidden, {kAny, kAny});
  check.tensor("rows", rows, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.need(rows.size(0) >= hidden.size(0), "rows must begin with one for each of hidden's ", hidden.size(0), "; got ", rows.size(0));
  check.tensor("offsets", offsets, hidden.scalar_type(), {rows.size(0)});
  check.tensor("ids", ids, kLong, {rows.size(0)});
  check.need(chunk_bytes > 0, "chunk_bytes must be at least 1; got ", chunk_bytes);
}

void check_saved(
    const Arguments& check, const Tensor& hidden, const Tensor& rows,
    std::initializer_list<std::pair<const char*, Tensor>> of_rows, const char* name, const Tensor& kept) {
  const int64_t count = hidden.size(0);
  for (const auto& [each, tensor] : of_rows) check.tensor(each, tensor, hidden.scalar_type(), {count});
  check.tensor(name, kept, hidden.scalar_type(), {kept.dim() > 0 && kept.size(0) == 0 ? 0 : count, rows.size(0) - count});
}

RightOperand::RightOperand(Tensor w, Operand operand) : weight_(std::move(w)), operand_(operand) {
  if (is_exact(operand)) return;
  packed_ = pack(weight_, operand);
}

void RightOperand::multiply(const Tensor& x, const Tensor& out, bool accumulate, const Tensor& bias) const {
  Tensor target = out;
  if (is_exact(operand_)) {
    if (accumulate)
      addmm_out(target, target, x, weight_);
    else if (bias.defined())
      addmm_out(target, bias, x, weight_);
    else
      mm_out(target, x, weight_);
    return;
  }
  const Tensor left = to_operand_rows(x, operand_);
  elmo_fast::multiply<float>(
      packed_, left.const_data_ptr(), left.size(1), x.size(0), target.mutable_data_ptr<float>(), packed_.n, accumulate,
      bias.defined() ? bias.const_data_ptr<float>() : nullptr);
}

namespace {

// The power of two just above the largest |g|, so that g / scale fits every operand; 1 where there is none.
double scale_of(const Tensor& grad) {
  double largest = 0.0;
  ELMO_DISPATCH_FLOATING(grad.scalar_type(), [&] {
    const auto* g = grad.const_data_ptr<scalar_t>();
    for (int64_t i = 0; i < grad.numel(); ++i) {
      if (std::isnan(g[i])) largest = std::numeric_limits<double>::infinity();
      largest = std::max(largest, std::abs(static_cast<double>(g[i])));
    }
  });
  return std::isfinite(largest) && largest > 0 ? std::exp2(std::ceil(std::log2(largest))) : 1.0;
}

// How many rows of S logits fit into the bound; at least one.
int64_t rows_per_chunk(int64_t rows, int64_t samples, int64_t item_bytes, int64_t chunk_bytes) {
  return std::max<int64_t>(1, std::min(rows, chunk_bytes / std::max<int64_t>(1, samples * item_bytes)));
}

// Probabilities reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
constexpr double kLift = 16384.0;

}  // namespace

Gradients::Gradients(const Tensor& grad, Operand operand) : operand_(operand) {
  if (is_exact(operand)) return;
  lift_ = kLift;
  scale_ = scale_of(grad);
}

void Gradients::add(
    const Tensor& p, const Tensor& g, const Tensor& values, const RightOperand& rows, const Tensor& d_hidden,
    bool add_hidden, const Tensor& d_rows, bool add_rows, const Tensor& d_offsets) const {
  add_column_sums(p, g, d_offsets);
  const Tensor lifted = is_exact(operand_) ? p : p.mul(lift_);
  rows.multiply(lifted, d_hidden, add_hidden);
  const RightOperand weighted(values.mul(g.div(scale_).unsqueeze(1)), operand_);
  weighted.multiply(lifted.t(), d_rows, add_rows);
}

void Gradients::finish(
    const Tensor& g, const Tensor& d_true, const Tensor& true_rows, const Tensor& d_hidden,
    const Tensor& d_rows) const {
  d_hidden.mul_(g.div(lift_).unsqueeze(1)).add_(d_true.unsqueeze(1).mul(true_rows));
  if (!is_exact(operand_)) d_rows.copy_(d_rows.mul(scale_ / lift_));
}

Tensor logits_of_samples(
    const Tensor& hidden, const Tensor& rows, const Tensor& offsets, const std::string& precision, int64_t chunk_bytes, bool keep,
    const std::function<void(int64_t, const Tensor&, const Tensor&, bool)>& finish) {
  const int64_t count = hidden.size(0), samples = rows.size(0) - count;
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const int64_t step = rows_per_chunk(count, samples, hidden.element_size(), chunk_bytes);
  const bool keeps = keep && count <= step;
  const Tensor kept = empty({keeps ? count : 0, samples}, hidden.options());
  if (count == 0) return kept;
  const Tensor true_rows = rounded_values(rows.narrow(0, 0, count), operand);
  const Tensor true_logits = rounded_values(hidden, operand).mul(true_rows).sum(1).add_(offsets.narrow(0, 0, count));
  const Tensor sample_offsets = offsets.narrow(0, count, samples).contiguous();
  const RightOperand sample_rows(rows.narrow(0, count, samples).t(), operand);
  const Tensor scratch = keeps ? kept : empty({step, samples}, hidden.options());
  for (int64_t i = 0; i < count; i += step) {
    const int64_t n = std::min(step, count - i);
    const Tensor logits = scratch.narrow(0, 0, n);
    sample_rows.multiply(hidden.narrow(0, i, n), logits, false, sample_offsets);
    finish(i, logits, true_logits.narrow(0, i, n), keeps);
  }
  return kept;
}

std::tuple<Tensor, Tensor, Tensor> gradients_of_samples(
    const Tensor& g, const Tensor& d_true, const Tensor& hidden, const Tensor& rows, const Tensor& offsets,
    const Tensor& kept, const std::string& precision, int64_t chunk_bytes,
    const std::function<void(int64_t, const Tensor&)>& to_slopes) {
  const int64_t count = hidden.size(0), samples = rows.size(0) - count;
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const int64_t step = rows_per_chunk(count, samples, hidden.element_size(), chunk_bytes);
  Tensor d_hidden = empty_like(hidden), d_rows = empty(rows.sizes(), rows.options());
  Tensor d_offsets = empty(offsets.sizes(), offsets.options());
  if (count == 0) return {d_hidden, d_rows.zero_(), d_offsets.zero_()};

  const Tensor values = rounded_values(hidden, operand);
  Tensor d_true_rows = d_rows.narrow(0, 0, count), d_sample_rows = d_rows.narrow(0, count, samples);
  d_true_rows.copy_(values.mul(d_true.unsqueeze(1)));
  d_offsets.narrow(0, 0, count).copy_(d_true);
  const Tensor d_sample_offsets = zeros({samples}, offsets.options().dtype(kDouble));

  const Tensor sample_rows = rows.narrow(0, count, samples), sample_offsets = offsets.narrow(0, count, samples).contiguous();
  const bool keeps = kept.size(0) == count;
  const RightOperand logits_of(sample_rows.t(), keeps ? Operand::Float32 : operand), hidden_of(sample_rows, operand);
  const Tensor scratch = keeps ? kept : empty({step, samples}, hidden.options());
  const Gradients gradients(g, operand);
  for (int64_t i = 0; i < count; i += step) {
    const int64_t n = std::min(step, count - i);
    const Tensor p = scratch.narrow(0, 0, n);
    if (!keeps) {
      logits_of.multiply(hidden.narrow(0, i, n), p, false, sample_offsets);
      to_slopes(i, p);
    }
    gradients.add(
        p, g.narrow(0, i, n), values.narrow(0, i, n), hidden_of, d_hidden.narrow(0, i, n), false, d_sample_rows, i > 0,
        d_sample_offsets);
  }
  d_offsets.narrow(0, count, samples).copy_(d_sample_offsets);
  gradients.finish(g, d_true, rounded_values(rows.narrow(0, 0, count), operand), d_hidden, d_sample_rows);
  return {d_hidden, d_rows, d_offsets};
}

AccidentalHits::AccidentalHits(const int64_t* samples, int64_t count) : places_(count) {
  for (int64_t i = 0; i < count; ++i) places_[i] = {samples[i], i};
  std::sort(places_.begin(), places_.end());
}

}  // namespace elmo_fast::sampled_rows
