#include "sampled_softmax/products.h"

#include <algorithm>

namespace elmo_fast::sampled_softmax {
RightOperand::RightOperand(at::Tensor w, Operand operand) : weight_(std::move(w)), operand_(operand) {
  if (exact(operand)) return;
  packed_ = pack(weight_, operand);
}

void RightOperand::multiply(const at::Tensor& x, const at::Tensor& out, bool accumulate, const at::Tensor& bias) const {
  at::Tensor target = out;
  if (exact(operand_)) {
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
  if (exact(operand)) return x;
  return x.to(operand == Operand::Float16AsFloat ? at::kHalf : at::kBFloat16).to(x.scalar_type());
}

AccidentalHits::AccidentalHits(const int64_t* samples, int64_t count) : places_(count) {
  for (int64_t i = 0; i < count; ++i) places_[i] = {samples[i], i};
  std::sort(places_.begin(), places_.end());
}

}  // namespace elmo_fast::sampled_softmax
