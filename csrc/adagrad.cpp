// The numbers of many tensors in pieces of one size: what threads share out, whatever their number.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/parallel.h"
#include "common/simd.h"
#include "common/tensor.h"

namespace elmo_fast::adagrad {
namespace {

constexpr int64_t kPiece = 16384;

struct Piece {
  int64_t tensor, first, last;
};

std::vector<Piece> pieces_of(TensorList tensors) {
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < static_cast<int64_t>(tensors.size()); ++i)
    for (int64_t first = 0; first < tensors[i].numel(); first += kPiece)
      pieces.push_back({i, first, std::min(first + kPiece, tensors[i].numel())});
  return pieces;
}

// f(i, pieces[i]) of every piece, in parallel.
template <typename F>
void each_piece(const std::vector<Piece>& pieces, const F& f) {
  parallel_for(static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i, pieces[i]);
  });
}

// square_norm: squares are summed in double, piece by piece, and the pieces in their order: the same bits on any number of threads.

constexpr int64_t kLanes = 32;             // sums side by side: a chain of additions waits for each one
constexpr int64_t kStretch = kLanes * 64;  // numbers of a partial sum: squares have one sign, and a long chain rounds them one way

template <typename T>
ELMO_MULTIVERSION double squares_of(const T* values, int64_t n) {
  double lanes[kLanes] = {};
  for (int64_t first = 0; first < n; first += kStretch) {
    const int64_t last = std::min(first + kStretch, n);
    double partial[kLanes] = {};
    int64_t i = first;
    for (; i + kLanes <= last; i += kLanes)
      for (int64_t j = 0; j < kLanes; ++j) partial[j] += static_cast<double>(values[i + j]) * static_cast<double>(values[i + j]);
    for (; i < last; ++i) partial[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += partial[j];
  }
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
double sum_of_squares(const std::vector<Tensor>& tensors) {
  const auto pieces = pieces_of(tensors);
  std::vector<double> sums(pieces.size());
  each_piece(pieces, [&](int64_t i, const Piece& piece) {
    sums[i] = squares_of<T>(tensors[piece.tensor].template const_data_ptr<T>() + piece.first, piece.last - piece.first);
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

Tensor square_norm(TensorList inputs) {
  const Arguments check("square_norm");
  check.need(!inputs.empty(), "tensors must hold at least one tensor; got none");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto name = text_of("tensors[", i, "]");
    check.tensor(name, inputs[i], kFloating, inputs[i].sizes());
    check.tensor(name, inputs[i], inputs[0].scalar_type(), inputs[i].sizes());
    tensors.push_back(inputs[i].contiguous());
  }
  const Tensor norm = empty({}, inputs[0].options());
  by_type(inputs[0].scalar_type(), [&]<typename T>() {
    *norm.mutable_data_ptr<T>() = static_cast<T>(sum_of_squares<T>(tensors));  // too large: infinity
  });
  return norm;
}

// adagrad_ and adagrad_rows_: gradient, sum and weight in one pass, the clip's factor applied on the way. Memory bounds it: 20 bytes for
// each float32 weight.

constexpr int64_t kAhead = 4;  // rows of a table that are fetched before they are updated: they lie anywhere

// One chunk of weights, their sums and gradients.
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

double number_of(const Arguments& check, const char* name, const Tensor& number, Types types) {
  check.tensor(name, number, types, {});
  return number.scalar_type() == kDouble ? *number.const_data_ptr<double>() : *number.const_data_ptr<float>();
}

// The factor of the gradients; not finite: nothing is to be changed.
double factor_of(const Arguments& check, const std::optional<Tensor>& scale, ScalarType dtype) {
  return scale.has_value() ? number_of(check, "scale", *scale, {kFloat, dtype}) : 1.0;
}

// Marks these numbers as changed for autograd and for caches of copies: a view shares the version counter, and writing none of its numbers
// moves it.
void mark_written(const Tensor& tensor) {
  const Tensor all = call("aten::flatten", "using_ints", call("aten::detach", "", tensor), int64_t{0}, int64_t{-1});
  call("aten::zero_", "", call("aten::narrow", "", all, int64_t{0}, int64_t{0}, int64_t{0}));
}

void check_written(const Arguments& check, const std::string& name, const Tensor& weights, const Tensor& sums, Types types = kFloating) {
  check.tensor(name, weights, types, weights.sizes());
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
    TensorList parameters, TensorList accumulators, TensorList inputs, TensorList copies, const Tensor& learning_rate,
    const std::optional<Tensor>& scale) {
  const Arguments check("adagrad_");
  const size_t count = parameters.size();
  check.need(copies.empty(), "the CPU's kernel changes no rounded copies; got ", copies.size());
  check.need(
      accumulators.size() == count && inputs.size() == count, "parameters, accumulators and gradients must be as many; got ", count, ", ",
      accumulators.size(), " and ", inputs.size());
  if (count == 0) return;
  const auto dtype = parameters[0].scalar_type();
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < count; ++i) {
    check_written(check, text_of("parameters[", i, "]"), parameters[i], accumulators[i], i == 0 ? kFloating : Types(dtype));
    check.tensor(text_of("gradients[", i, "]"), inputs[i], dtype, parameters[i].sizes());
    gradients.push_back(inputs[i].contiguous());
  }
  const double rate = number_of(check, "learning_rate", learning_rate, kFloating), factor = factor_of(check, scale, dtype);
  if (!std::isfinite(factor)) return;
  by_type(dtype, [&]<typename T>() {
    update_all<T>(parameters, accumulators, gradients, static_cast<T>(rate), static_cast<T>(factor));
  });
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
    const Tensor& table, const Tensor& accumulator, const Tensor& ids_any, const std::optional<Tensor>& positions, const Tensor& rows_any,
    const Tensor& learning_rate, const std::optional<Tensor>& scale) {
  const Arguments check("adagrad_rows_");
  check.need(!positions.has_value(), "the CPU's kernel takes the rows in the order of distinct ids, without positions");
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
  const double rate = number_of(check, "learning_rate", learning_rate, kFloating), factor = factor_of(check, scale, table.scalar_type());
  if (!std::isfinite(factor)) return;
  by_type(table.scalar_type(), [&]<typename T>() {
    update_rows<T>(table, accumulator, ids, rows, static_cast<T>(rate), static_cast<T>(factor));
  });
  mark_written(table), mark_written(accumulator);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) {
  m.impl("square_norm", ELMO_BOX(square_norm));
  m.impl("adagrad_", ELMO_BOX(adagrad_));
  m.impl("adagrad_rows_", ELMO_BOX(adagrad_rows_));
}

}  // namespace elmo_fast::adagrad
