// adagrad_ and adagrad_rows_: gradient, sum and weight in one pass, the clip's factor applied on the way. Memory bounds it: 20 bytes for
// each float32 weight.

#include <cmath>

#include "adagrad/pieces.h"
#include "common/checks.h"
#include "common/simd.h"

namespace elmo_fast::adagrad {
namespace {

constexpr int64_t kAhead = 4;  // rows of a table that are fetched before they are updated: they lie anywhere

// One stretch of weights, their sums and gradients.
template <typename T>
struct Stretch {
  T *weights, *sums;
  const T* gradients;
  int64_t size;
};

template <typename T>
ELMO_MULTIVERSION void update(const Stretch<T>& s, T rate, T scale) {
  T *__restrict weights = s.weights, *__restrict sums = s.sums;
  const T* __restrict gradients = s.gradients;
  for (int64_t i = 0; i < s.size; ++i) {
    const T gradient = scale * gradients[i], sum = sums[i] + gradient * gradient;
    sums[i] = sum;
    weights[i] -= rate * gradient / std::sqrt(sum);
  }
}

// The factor of the gradients; not finite: nothing is to be changed.
double factor_of(const Arguments& check, const std::optional<Tensor>& scale, ScalarType dtype) {
  if (!scale.has_value()) return 1.0;
  check.tensor("scale", *scale, scale->scalar_type() == kFloat ? kFloat : dtype, {});
  return scale->scalar_type() == kDouble ? *scale->const_data_ptr<double>() : *scale->const_data_ptr<float>();
}

void check_written(const Arguments& check, const std::string& name, const Tensor& weights, const Tensor& sums) {
  check.floating(name, weights, weights.sizes());
  check.tensor(name + "'s accumulator", sums, weights.scalar_type(), weights.sizes());
  check.contiguous(name, weights);
  check.contiguous(name + "'s accumulator", sums);
}

template <typename T>
void update_all(TensorList parameters, TensorList accumulators, const std::vector<Tensor>& gradients, T rate, T scale) {
  each_piece(pieces_of(parameters), [&](int64_t, const Piece& piece) {
    const int64_t i = piece.tensor, first = piece.first;
    update<T>(
        {parameters[i].template mutable_data_ptr<T>() + first, accumulators[i].template mutable_data_ptr<T>() + first,
         gradients[i].template const_data_ptr<T>() + first, piece.last - first},
        rate, scale);
  });
}

void adagrad_(
    TensorList parameters, TensorList accumulators, TensorList given, double learning_rate,
    const std::optional<Tensor>& scale) {
  const Arguments check("adagrad_");
  const size_t count = parameters.size();
  check.need(
      accumulators.size() == count && given.size() == count, "parameters, accumulators and gradients must be as many; got ", count, ", ",
      accumulators.size(), " and ", given.size());
  if (count == 0) return;
  const auto dtype = parameters[0].scalar_type();
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < count; ++i) {
    check_written(check, text_of("parameters[", i, "]"), parameters[i], accumulators[i]);
    check.tensor(text_of("parameters[", i, "]"), parameters[i], dtype, parameters[i].sizes());
    check.tensor(text_of("gradients[", i, "]"), given[i], dtype, parameters[i].sizes());
    gradients.push_back(given[i].contiguous());
  }
  const double factor = factor_of(check, scale, dtype);
  if (!std::isfinite(factor)) return;
  if (dtype == kDouble)
    update_all<double>(parameters, accumulators, gradients, learning_rate, factor);
  else
    update_all<float>(parameters, accumulators, gradients, static_cast<float>(learning_rate), static_cast<float>(factor));
  for (size_t i = 0; i < count; ++i) mark_written(parameters[i]), mark_written(accumulators[i]);
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
      update<T>({weights + id[i] * width, squares + id[i] * width, gradients + i * width, width}, rate, scale);
    }
  });
}

void adagrad_rows_(
    const Tensor& table, const Tensor& accumulator, const Tensor& ids_any, const Tensor& rows_any, double learning_rate,
    const std::optional<Tensor>& scale) {
  const Arguments check("adagrad_rows_");
  check.need(table.dim() > 0, "table must have rows; got no dimension");
  check_written(check, "table", table, accumulator);
  auto sizes = table.sizes().vec();
  sizes[0] = ids_any.numel();
  check.tensor("ids", ids_any, kLong, {kAny});
  check.tensor("rows", rows_any, table.scalar_type(), sizes);
  const Tensor ids = ids_any.contiguous(), rows = rows_any.contiguous();
  check.ids("ids", ids, table.size(0));
  const auto* id = ids.const_data_ptr<int64_t>();
  check.need(std::adjacent_find(id, id + ids.numel(), std::greater_equal<>()) == id + ids.numel(), "ids must rise, none twice");
  const double factor = factor_of(check, scale, table.scalar_type());
  if (!std::isfinite(factor)) return;
  if (table.scalar_type() == kDouble)
    update_rows<double>(table, accumulator, ids, rows, learning_rate, factor);
  else
    update_rows<float>(table, accumulator, ids, rows, static_cast<float>(learning_rate), static_cast<float>(factor));
  mark_written(table), mark_written(accumulator);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("adagrad_", ELMO_BOX(adagrad_));
  m.impl("adagrad_rows_", ELMO_BOX(adagrad_rows_));
}

}  // namespace elmo_fast::adagrad
