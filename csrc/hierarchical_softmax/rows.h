// Rows of nodes as a product sees them: a dot and a sum with operands rounded while they are read, so that no copy of the table is made.
#pragma once


#include "common/checks.h"
#include "common/operand.h"

namespace elmo_fast::hierarchical {

// Raises unless these are hidden [N, D], targets [N], inner nodes' rows [n, D], and the paths first [V + 1], nodes [steps] of a tree.
inline void check_paths(
    const Arguments& check, const Tensor& hidden, const Tensor& targets, const Tensor& weight, const Tensor& first,
    const Tensor& nodes) {
  check.floating("hidden", hidden, {kAny, kAny});
  check.tensor("targets", targets, kLong, {hidden.size(0)});
  check.tensor("weight", weight, hidden.scalar_type(), {kAny, hidden.size(1)});
  check.tensor("first", first, kLong, {kAny});
  check.tensor("nodes", nodes, kLong, {kAny});
  check.need(first.numel() > 0, "first must have V + 1 places; got none");
}

enum class Rounding { None, BFloat16, Float16 };

inline Rounding rounding_of(Operand operand) {
  if (is_exact(operand)) return Rounding::None;
  return is_float16(operand) ? Rounding::Float16 : Rounding::BFloat16;
}

// sum_i x[i] round(w[i])
template <typename T>
T dot(const T* x, const T* w, int64_t n, Rounding rounding);
// y += a round(w)
template <typename T>
void add_scaled(T* y, T a, const T* w, int64_t n, Rounding rounding);

// x rounded as the products take it, contiguous; itself where nothing is rounded.
inline Tensor rounded_rows(const Tensor& x, Rounding rounding) {
  const Tensor rows = x.contiguous();
  if (rounding == Rounding::None) return rows;
  return rows.to(rounding == Rounding::Float16 ? kHalf : kBFloat16).to(rows.scalar_type());
}

// A table whose rows are contiguous, `stride` elements apart; a copy where they are not.
struct Table {
  explicit Table(const Tensor& weight) : rows(weight.size(1) < 2 || weight.stride(1) == 1 ? weight : weight.contiguous()) {}
  template <typename T>
  const T* row(int64_t node) const {
    return rows.const_data_ptr<T>() + node * rows.stride(0);
  }
  Tensor rows;
};

}  // namespace elmo_fast::hierarchical
