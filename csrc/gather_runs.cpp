// gather_runs: runs of stored numbers, concatenated, copied run by run. Floor: reading and writing 4 bytes a number.
#include <algorithm>
#include <numeric>
#include <vector>

#include "common/tensor.h"

namespace elmo_fast {
namespace {

// Runs lie anywhere in the text, each a miss of every cache: their lines are asked for this many runs ahead.
constexpr int64_t kAhead = 16, kLinesAhead = 4, kPerLine = 16;

struct Run {
  const int32_t* from;  // its first number; it is read upwards or downwards from there
  int64_t length;
};

void prefetch(const Run& run, bool upward) {
#if defined(__GNUC__)
  const int64_t lines = std::min((run.length + kPerLine - 1) / kPerLine + 1, kLinesAhead);
  for (int64_t line = 0; line < lines; ++line)
    __builtin_prefetch(run.from + (upward ? kPerLine : -kPerLine) * line);
#endif
}

// Address of each run's numbers; raises if a run leaves the part in which it begins.
std::vector<Run> located(const TensorList& values, const Tensor& first, const Tensor& lengths, int64_t upward) {
  std::vector<const int32_t*> parts;
  std::vector<int64_t> bounds{0};
  for (const Tensor& part : values) {
    parts.push_back(part.const_data_ptr<int32_t>());
    bounds.push_back(bounds.back() + part.numel());
  }
  const auto* at = first.const_data_ptr<int64_t>();
  const auto* count = lengths.const_data_ptr<int64_t>();
  std::vector<Run> runs(static_cast<size_t>(first.numel()));
  for (int64_t r = 0; r < first.numel(); ++r) {
    const auto part = std::upper_bound(bounds.begin(), bounds.end(), at[r]) - bounds.begin() - 1;
    const bool begins = part >= 0 && part < static_cast<int64_t>(parts.size());
    const int64_t room = !begins ? 0 : r < upward ? bounds[part + 1] - at[r] : at[r] + 1 - bounds[part];
    ELMO_CHECK_INDEX(
        count[r] >= 0 && count[r] <= room, "gather_runs: run ", r, " begins at ", at[r], ", has ", count[r],
        " numbers and leaves the part of values in which it begins");
    runs[r] = {begins ? parts[part] + (at[r] - bounds[part]) : nullptr, count[r]};
  }
  return runs;
}

void check(TensorList values, const Tensor& first, const Tensor& lengths, int64_t upward, const Tensor& out) {
  const Arguments check("gather_runs");
  check.tensors("values", values, kInt, {kAny});
  for (const Tensor& part : values) check.contiguous("values", part);
  check.tensor("first", first, kLong, {kAny});
  check.tensor("lengths", lengths, kLong, {first.numel()});
  check.tensor("out", out, kInt, {kAny});
  check.contiguous("first", first);
  check.contiguous("lengths", lengths);
  check.contiguous("out", out);
  check.need(upward >= 0 && upward <= first.numel(), "upward must be from 0 to R = ", first.numel(), "; got ", upward);
}

void gather_runs(TensorList values, const Tensor& first, const Tensor& lengths, int64_t upward, Tensor& out) {
  check(values, first, lengths, upward, out);
  const std::vector<Run> runs = located(values, first, lengths, upward);
  const int64_t total = std::accumulate(runs.begin(), runs.end(), int64_t{0}, [](int64_t sum, const Run& run) { return sum + run.length; });
  Arguments("gather_runs").need(out.numel() == total, "out must hold sum(lengths) = ", total, " numbers; got ", out.numel());
  auto* to = out.mutable_data_ptr<int32_t>();
  const auto count = static_cast<int64_t>(runs.size());
  for (int64_t r = 0; r < count; ++r) {
    if (r + kAhead < count) prefetch(runs[r + kAhead], r + kAhead < upward);
    const auto [from, length] = runs[r];
    if (r < upward)
      to = std::copy_n(from, length, to);
    else
      for (int64_t i = 0; i < length; ++i) *to++ = from[-i];
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(elmo_fast, CPU, m) { m.impl("gather_runs", ELMO_BOX(gather_runs)); }

}  // namespace elmo_fast
