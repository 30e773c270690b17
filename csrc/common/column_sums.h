// Sums over the rows of a matrix, for gradients of biases.
#pragma once

#include "common/tensor.h"


namespace elmo_fast {

// sums[n] += xᵀ[n, rows] · weights[rows], or the columns' sums where weights is undefined. x: any strides; weights:
// contiguous, of x's dtype; sums: double, contiguous.
// Added in one order whatever the number of threads.
void add_column_sums(const Tensor& x, const Tensor& weights, const Tensor& sums);

}  // namespace elmo_fast
