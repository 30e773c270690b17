#include "common/sampled_rows.h"

#include <algorithm>
#include <cmath>

#include "common/column_sums.h"

namespace elmo_fast::sampled_rows {
void check_samples(
    const Arguments& check, const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& offsets, const at::Tensor& ids,
    int64_t chunk_bytes) {
  check.floating("hidden", hidden, {kAny, kAny});
  check.tensor("rows", rows, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.need(rows.size(0) >= hidden.size(0), "rows must begin with one for each of hidden's ", hidden.size(0), "; got ", rows.size(0));
  check.tensor("offsets", offsets, hidden.scalar_type(), {rows.size(0)});
  check.tensor("ids", ids, at::kLong, {rows.size(0)});
  check.need(chunk_bytes > 0, "chunk_bytes must be at least 1; got ", chunk_bytes);
}

void check_saved(
    const Arguments& check, const at::Tensor& hidden, const at::Tensor& rows,
    std::initializer_list<std::pair<const char*, at::Tensor>> of_rows, const char* name, const at::Tensor& kept) {
  const int64_t count = hidden.size(0);
  for (const auto& [each, tensor] : of_rows) check.tensor(each, tensor, hidden.scalar_type(), {count});
  check.tensor(name, kept, hidden.scalar_type(), {kept.dim() > 0 && kept.size(0) == 0 ? 0 : count, rows.size(0) - count});
}

RightOperand::RightOperand(at::Tensor w, Operand operand) : weight_(std::move(w)), operand_(operand) {
  if (is_exact(operand)) return;
  packed_ = pack(weight_, operand);
}

void RightOperand::multiply(const at::Tensor& x, const at::Tensor& out, bool accumulate, const at::Tensor& bias) const {
  at::Tensor target = out;
  if (is_exact(operand_)) {
    if (accumulate)
      target.addmm_(x, weight_);
    else if (bias.defined())
      at::addmm_out(target, bias, x, weight_);
    else
      at::mm_out(target, x, weight_);
    return;
  }
  const at::Tensor left = to_operand_rows(x, operand_);
  elmo_fast::multiply<float>(
      packed_, left.const_data_ptr(), left.size(1), x.size(0), target.mutable_data_ptr<float>(), packed_.n, accumulate,
      bias.defined() ? bias.const_data_ptr<float>() : nullptr);
}

at::Tensor rounded_values(const at::Tensor& x, Operand operand) {
  if (is_exact(operand)) return x;
  return x.to(packed_type(operand)).to(x.scalar_type());
}

namespace {

// The power of two just above the largest |g|, so that g / scale fits every operand; 1 where there is none.
double scale_of(const at::Tensor& grad) {
  if (grad.numel() == 0) return 1.0;
  const double largest = grad.abs().max().item<double>();
  return std::isfinite(largest) && largest > 0 ? std::exp2(std::ceil(std::log2(largest))) : 1.0;
}

// Probabilities reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
constexpr double kLift = 16384.0;

}  // namespace

Gradients::Gradients(const at::Tensor& grad, Operand operand) : operand_(operand) {
  if (is_exact(operand)) return;
  lift_ = kLift;
  scale_ = scale_of(grad);
}

void Gradients::add(
    const at::Tensor& p, const at::Tensor& g, const at::Tensor& values, const RightOperand& rows, const at::Tensor& d_hidden,
    bool add_hidden, const at::Tensor& d_rows, bool add_rows, const at::Tensor& d_offsets) const {
  add_column_sums(p, g, d_offsets);
  const at::Tensor lifted = is_exact(operand_) ? p : p.mul(lift_);
  rows.multiply(lifted, d_hidden, add_hidden);
  const RightOperand weighted(values.mul(g.div(scale_).unsqueeze(1)), operand_);
  weighted.multiply(lifted.t(), d_rows, add_rows);
}

void Gradients::finish(
    const at::Tensor& g, const at::Tensor& d_true, const at::Tensor& true_rows, const at::Tensor& d_hidden,
    const at::Tensor& d_rows) const {
  at::Tensor(d_hidden).mul_(g.div(lift_).unsqueeze(1)).addcmul_(d_true.unsqueeze(1), true_rows);
  if (!is_exact(operand_)) at::Tensor(d_rows).mul_(scale_ / lift_);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients_of_samples(
    const at::Tensor& g, const at::Tensor& d_true, const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& offsets,
    const at::Tensor& kept, const std::string& precision, int64_t chunk_bytes,
    const std::function<void(int64_t, const at::Tensor&)>& to_slopes) {
  const int64_t count = hidden.size(0), samples = rows.size(0) - count;
  const Operand operand = resolve_operand(precision, hidden.scalar_type());
  const int64_t step = rows_per_chunk(count, samples, hidden.element_size(), chunk_bytes);
  at::Tensor d_hidden = at::empty_like(hidden), d_rows = at::empty(rows.sizes(), rows.options());
  at::Tensor d_offsets = at::empty(offsets.sizes(), offsets.options());
  if (count == 0) return {d_hidden, d_rows.zero_(), d_offsets.zero_()};

  const at::Tensor values = rounded_values(hidden, operand);
  at::Tensor d_true_rows = d_rows.narrow(0, 0, count), d_sample_rows = d_rows.narrow(0, count, samples);
  at::mul_out(d_true_rows, values, d_true.unsqueeze(1));
  d_offsets.narrow(0, 0, count).copy_(d_true);
  const at::Tensor d_sample_offsets = at::zeros({samples}, offsets.options().dtype(at::kDouble));

  const at::Tensor sample_rows = rows.narrow(0, count, samples), sample_offsets = offsets.narrow(0, count, samples).contiguous();
  const bool keeps = kept.size(0) == count;
  const RightOperand logits_of(sample_rows.t(), keeps ? Operand::Float32 : operand), hidden_of(sample_rows, operand);
  const at::Tensor scratch = keeps ? kept : at::empty({step, samples}, hidden.options());
  const Gradients gradients(g, operand);
  for (int64_t i = 0; i < count; i += step) {
    const int64_t n = std::min(step, count - i);
    const at::Tensor p = scratch.narrow(0, 0, n);
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
