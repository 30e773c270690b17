#include "common/column_sums.h"

#include <algorithm>

#include "common/block_kernels.h"
#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast {
namespace {

constexpr int64_t kRun = 32;  // rows of one sum; longer sums are sums of these, in double: a single chain rounds at the size of the whole

template <typename T>
ELMO_MULTIVERSION void add_rows(
    const T* __restrict x, const T* __restrict weights, int64_t rows, int64_t stride, double* __restrict sum, int64_t n) {
  T part[kBlock] = {};
  for (int64_t i = 0; i < rows; ++i) {
    const T weight = weights == nullptr ? T(1) : weights[i];
    for (int64_t j = 0; j < n; ++j) part[j] += weight * x[i * stride + j];
  }
  for (int64_t j = 0; j < n; ++j) sum[j] += part[j];
}

}  // namespace

void add_column_sums(const Tensor& any, const Tensor& weights, const Tensor& sums) {
  const Tensor x = any.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  auto* target = sums.mutable_data_ptr<double>();
  ELMO_DISPATCH_FLOATING(x.scalar_type(), [&] {
    const auto* source = x.const_data_ptr<scalar_t>();
    const auto* factors = weights.defined() ? weights.const_data_ptr<scalar_t>() : nullptr;
    parallel_for((columns + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kBlock; first < std::min(columns, end * kBlock); first += kBlock)
        for (int64_t row = 0; row < rows; row += kRun)
          add_rows<scalar_t>(
              source + row * columns + first, factors == nullptr ? nullptr : factors + row, std::min(kRun, rows - row), columns,
              target + first, std::min(kBlock, columns - first));
    });
  });
}

}  // namespace elmo_fast
