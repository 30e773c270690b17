// What both passes of scalar_mix share: layers as [P positions, D] rows, cut into blocks that do not depend on the threads.
#pragma once


#include <algorithm>
#include <optional>
#include <vector>

#include "common/checks.h"
#include "common/parallel.h"
#include "common/simd.h"

namespace elmo_fast::scalar_mix {

constexpr int64_t kPositions = 16;  // positions of a block of partial sums
constexpr int64_t kTile = 1024;     // elements of each layer held in the first-level cache while they are mixed

struct Shape {
  int64_t positions, width;
  int64_t elements() const { return positions * width; }
  int64_t blocks() const { return (positions + kPositions - 1) / kPositions; }
};

inline Shape shape_of(const Tensor& layer) {
  const int64_t width = layer.size(-1);
  return {width == 0 ? 0 : layer.numel() / width, width};
}

inline void check_layers(const Arguments& check, TensorList layers) {
  check.need(!layers.empty() && layers[0].dim() > 0, "layers must be at least one tensor [..., D]");
  check.floating("layers[0]", layers[0], layers[0].sizes());
  check.tensors("layers", layers, layers[0].scalar_type(), layers[0].sizes());
}

// grad [M, ...] of mixes of these layers, and their statistics [2, L].
inline void check_gradient(const Arguments& check, const Tensor& grad, TensorList layers, const Tensor& statistics) {
  check_layers(check, layers);
  auto sizes = layers[0].sizes().vec();
  sizes.insert(sizes.begin(), kAny);
  check.tensor("grad", grad, layers[0].scalar_type(), sizes);
  check.tensor("statistics", statistics, kDouble, {2, static_cast<int64_t>(layers.size())});
  check.contiguous("statistics", statistics);
}

inline void check_counted(const Arguments& check, const std::optional<Tensor>& counted, const Tensor& layer) {
  if (!counted.has_value()) return;
  check.tensor("counted", counted, kBool, layer.sizes().slice(0, layer.dim() - 1));
  check.contiguous("counted", *counted);
}

template <typename T>
std::vector<const T*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const T*> p;
  for (const auto& tensor : tensors) p.push_back(tensor.const_data_ptr<T>());
  return p;
}

inline std::vector<Tensor> contiguous(TensorList tensors) {
  std::vector<Tensor> c;
  for (const auto& tensor : tensors) c.push_back(tensor.contiguous());
  return c;
}

inline const bool* data_or_null(const std::optional<Tensor>& counted) {
  return counted.has_value() ? counted->const_data_ptr<bool>() : nullptr;
}

inline int64_t count_of(const Tensor& counted) {
  const bool* flags = counted.const_data_ptr<bool>();
  return std::count(flags, flags + counted.numel(), true);
}

// Sums `count` values per block, blocks in parallel into their own rows, rows added in order: the same for any thread count.
template <typename Fill>
std::vector<double> block_sums(int64_t blocks, int64_t count, const Fill& fill) {
  std::vector<double> partial(blocks * count, 0.0), total(count, 0.0);
  parallel_for(blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) fill(block, partial.data() + block * count);
  });
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t i = 0; i < count; ++i) total[i] += partial[block * count + i];
  return total;
}

template <typename T>
ELMO_MULTIVERSION static double sum_of(const T* x, int64_t n) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lanes[j] += static_cast<double>(x[i + j]);
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(x[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace elmo_fast::scalar_mix
