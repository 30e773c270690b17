// square_norm: squares are summed in double, piece by piece, and the pieces in their order: the same bits on any number of threads.

#include "adagrad/pieces.h"
#include "common/checks.h"
#include "common/simd.h"

namespace elmo_fast::adagrad {
namespace {

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

Tensor square_norm(TensorList given) {
  const Arguments check("square_norm");
  check.need(!given.empty(), "tensors must hold at least one tensor; got none");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto name = text_of("tensors[", i, "]");
    check.floating(name, given[i], given[i].sizes());
    check.tensor(name, given[i], given[0].scalar_type(), given[i].sizes());
    tensors.push_back(given[i].contiguous());
  }
  const Tensor norm = empty({}, given[0].options());
  if (given[0].scalar_type() == kDouble)
    *norm.mutable_data_ptr<double>() = sum_of_squares<double>(tensors);
  else
    *norm.mutable_data_ptr<float>() = static_cast<float>(sum_of_squares<float>(tensors));  // too large: infinity
  return norm;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("square_norm", ELMO_BOX(square_norm)); }

}  // namespace elmo_fast::adagrad
