// The numbers of many tensors in pieces of one size: what threads share out, whatever their number.
#pragma once


#include <algorithm>
#include <vector>

#include "common/parallel.h"
#include "common/tensor.h"

namespace elmo_fast::adagrad {

constexpr int64_t kPiece = 16384;

struct Piece {
  int64_t tensor, first, last;
};

inline std::vector<Piece> pieces_of(TensorList tensors) {
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

}  // namespace elmo_fast::adagrad
