// Loops over one row of logits, compiled for several instruction sets: largest, exponentials and their sum. T is float or double.
#pragma once

#include <cstdint>

namespace elmo_fast {

// The largest of x[n] and `start`.
template <typename T>
T largest_of(const T* x, int64_t n, T start);
// x <- exp(x - largest), zero for -inf; returns the sum.
template <typename T>
T exponentials(T* x, int64_t n, T largest);
// x <- exp(x - largest - log_sum), zero for -inf.
template <typename T>
void probabilities(T* x, int64_t n, T largest, T log_sum);
template <typename T>
void scale(T* x, int64_t n, T factor);

// The loss of a target with logit `true_logit` against others whose exp(logit - largest) sum to `sum`, and the logarithm of the sum of all,
// relative to `largest` too, which is not below `true_logit`: a log-sum of logits near 1e6 would be rounded to sixteenths.
template <typename T>
struct LogSum {
  T loss, log_sum;
};
template <typename T>
LogSum<T> log_sum_of(T true_logit, T largest, T sum);

}  // namespace elmo_fast
