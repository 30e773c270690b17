// adagrad_rows_: gradient, sum and weight of a table's rows in one pass, the clip's factor applied on the way. Memory bounds it. Dense tensors are
// updated by torch's fused kernel, which gives the same bits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast::adagrad {
namespace {

constexpr int64_t kPiece = 16384;  // numbers that a thread takes at a time, at least
constexpr int64_t kAhead = 4;  // rows of a table that are fetched before they are updated: they lie anywhere

template <typename T>
ELMO_MULTIVERSION void update(T* __restrict weights, T* __restrict sums, const T* __restrict gradients, int64_t size, T rate, T scale) {
  for (int64_t i = 0; i < size; ++i) {
    const T gradient = scale * gradients[i], sum = sums[i] + gradient * gradient;
    sums[i] = sum;
    weights[i] -= rate * gradient / std::sqrt(sum);
  }
}

double number_of(const Arguments& check, const char* name, const Tensor& number, Types types) {
  check.tensor(name, number, types, {});
  return number.scalar_type() == kDouble ? *number.const_data_ptr<double>() : *number.const_data_ptr<float>();
}

// Marks these numbers as changed for autograd and for caches of copies: a view shares the version counter, and writing none of its numbers
// moves it.
void mark_written(const Tensor& tensor) {
  const Tensor all = call("aten::flatten", "using_ints", call("aten::detach", "", tensor), int64_t{0}, int64_t{-1});
  call("aten::zero_", "", call("aten::narrow", "", all, int64_t{0}, int64_t{0}, int64_t{0}));
}

// Row `i` of the gradient belongs to row ids[i] of the table.
template <typename T>
void update_rows(const Tensor& table, const Tensor& sums, const Tensor& ids, const Tensor& rows, T rate, T scale) {
  const int64_t count = ids.numel(), width = count == 0 ? 0 : rows.numel() / count, line = 64 / static_cast<int64_t>(sizeof(T));
  const auto* id = ids.const_data_ptr<int64_t>();
  T *weights = table.mutable_data_ptr<T>(), *squares = sums.mutable_data_ptr<T>();
  const T* gradients = rows.const_data_ptr<T>();
  parallel_for(count, std::max<int64_t>(1, kPiece / std::max<int64_t>(1, width)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0, ahead = std::min(i + kAhead, end - 1); j < width; j += line) {
        __builtin_prefetch(weights + id[ahead] * width + j, 1, 2);
        __builtin_prefetch(squares + id[ahead] * width + j, 1, 2);
      }
      update<T>(weights + id[i] * width, squares + id[i] * width, gradients + i * width, width, rate, scale);
    }
  });
}

void adagrad_rows_(
    const Tensor& table, const Tensor& accumulator, const Tensor& ids_any, const std::optional<Tensor>& positions, const Tensor& rows_any,
    const Tensor& learning_rate, const std::optional<Tensor>& scale) {
  const Arguments check("adagrad_rows_");
  check.need(!positions.has_value(), "the CPU's kernel takes the rows in the order of distinct ids, without positions");
  check.need(table.dim() > 0, "table must have rows; got no dimension");
  check.tensor("table", table, kFloating, table.sizes());
  check.tensor("table's accumulator", accumulator, table.scalar_type(), table.sizes());
  check.contiguous("table", table);
  check.contiguous("table's accumulator", accumulator);
  auto sizes = table.sizes().vec();
  sizes[0] = ids_any.numel();
  check.tensor("ids", ids_any, kLong, {kAny});
  check.tensor("rows", rows_any, table.scalar_type(), sizes);
  const Tensor ids = ids_any.contiguous(), rows = rows_any.contiguous();
  check.ids("ids", ids, table.size(0));
  const auto* id = ids.const_data_ptr<int64_t>();
  check.need(std::adjacent_find(id, id + ids.numel(), std::greater_equal<>()) == id + ids.numel(), "ids must rise, none twice");
  const double rate = number_of(check, "learning_rate", learning_rate, kFloating);
  const double factor = scale.has_value() ? number_of(check, "scale", *scale, {kFloat, table.scalar_type()}) : 1.0;
  if (!std::isfinite(factor)) return;
  by_type(table.scalar_type(), [&]<typename T>() {
    update_rows<T>(table, accumulator, ids, rows, static_cast<T>(rate), static_cast<T>(factor));
  });
  mark_written(table), mark_written(accumulator);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("adagrad_rows_", TORCH_BOX(&adagrad_rows_)); }

}  // namespace elmo_fast::adagrad
