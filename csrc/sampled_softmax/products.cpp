#include "sampled_softmax/products.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "common/simd.h"

namespace elmo_fast::sampled_softmax {
namespace {

// Two terms of one column, as the block kernels want them: the first in the low half.
ELMO_INLINE uint32_t pair_of(float first, float second) {
  return static_cast<uint32_t>(bfloat16_bits(first)) | static_cast<uint32_t>(bfloat16_bits(second)) << 16;
}

// Rows 2i and 2i + 1 of W (row-major), `width` columns of one block.
ELMO_MULTIVERSION void pack_rows(const float* even, const float* odd, int64_t width, uint32_t* target) {
  for (int64_t j = 0; j < width; ++j) target[j] = pair_of(even[j], odd[j]);
}

// A block of `width` columns of W (column-major, `stride` apart), k terms each: 64 pairs at a time, so that what is read
// column by column and written row by row stays in the first-level cache.
ELMO_MULTIVERSION void pack_columns(const float* first, int64_t stride, int64_t width, int64_t k, uint32_t* target) {
  constexpr int64_t kPairs = 64;
  uint32_t tile[kBlock * kPairs];
  for (int64_t begin = 0; begin < k / 2; begin += kPairs) {
    const int64_t pairs = std::min(kPairs, k / 2 - begin);
    for (int64_t j = 0; j < width; ++j) {
      const float* column = first + j * stride + 2 * begin;
      for (int64_t i = 0; i < pairs; ++i) tile[j * kPairs + i] = pair_of(column[2 * i], column[2 * i + 1]);
    }
    for (int64_t i = 0; i < pairs; ++i)
      for (int64_t j = 0; j < width; ++j) target[(begin + i) * kBlock + j] = tile[j * kPairs + i];
  }
  if (k % 2 == 1)
    for (int64_t j = 0; j < width; ++j) target[k / 2 * kBlock + j] = pair_of(first[j * stride + k - 1], 0.0f);
}

// As pack(), for the bfloat16 kernel and a W that is dense along its rows or its columns: a table packed for one step only
// must not cost more than the product.
Packed pack_pairs(const at::Tensor& weight) {
  Packed w;
  w.operand = Operand::BFloat16;
  w.k = weight.size(0);
  w.n = weight.size(1);
  const int64_t pairs = padded(w.k, w.operand) / 2;
  w.data = at::zeros({w.blocks() * kBlock * pairs * 2}, weight.options().dtype(at::kBFloat16));
  const float* source = weight.const_data_ptr<float>();
  auto* target = static_cast<uint32_t*>(w.data.mutable_data_ptr());
  const bool by_rows = weight.stride(1) == 1;
  const std::vector<float> nothing(kBlock, 0.0f);
  at::parallel_for(0, w.blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock, width = std::min(kBlock, w.n - first);
      uint32_t* to = target + block * pairs * kBlock;
      if (!by_rows) {
        pack_columns(source + first * weight.stride(1), weight.stride(1), width, w.k, to);
        continue;
      }
      for (int64_t i = 0; i < pairs; ++i) {
        const float* even = source + 2 * i * weight.stride(0) + first;
        pack_rows(even, 2 * i + 1 < w.k ? even + weight.stride(0) : nothing.data(), width, to + i * kBlock);
      }
    }
  });
  return w;
}

}  // namespace

RightOperand::RightOperand(at::Tensor w, Operand operand) : weight_(std::move(w)), operand_(operand) {
  if (exact(operand)) return;
  if (operand != Operand::BFloat16)
    packed_ = pack(weight_, operand);
  else
    packed_ = pack_pairs(weight_.stride(0) == 1 || weight_.stride(1) == 1 ? weight_ : weight_.contiguous());
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
