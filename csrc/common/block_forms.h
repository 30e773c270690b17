// What the forms of block_product.h share, on vectors of `Bytes` bytes. In a namespace without a name: each file compiles its own.
#pragma once

#include "common/block_product.h"

namespace elmo_fast {
namespace {

template <typename To, typename From>
inline To read(const From* from) {
  To value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

// A vector of sums.
template <typename T, int Bytes, int Rows>
struct Sums {
  using C = T;
  typedef T Sum __attribute__((vector_size(Bytes)));
  static constexpr int kWidth = Bytes / sizeof(T), kVectors = 2, kRows = Rows;
  static Sum zero() { return Sum{}; }
  static void store(T* c, Sum sum, bool accumulate) {
    const Sum total = accumulate ? read<Sum>(c) + sum : sum;
    __builtin_memcpy(c, &total, sizeof(total));
  }
};

// Operands of the sums' own type. Compilers fuse the multiplication and the addition where the instruction set can.
template <typename T, int Bytes, int Rows>
struct Plain : Sums<T, Bytes, Rows> {
  using X = T;
  using W = T;
  using Sum = typename Sums<T, Bytes, Rows>::Sum;
  static constexpr int kTerms = 1;
  static Sum load(const T* w) { return read<Sum>(w); }
  static T broadcast(const T* x) { return *x; }
  static Sum add(Sum sum, T x, Sum w) { return sum + x * w; }
};

// Units of `Terms` integers that fill 32 bits, whose products are added to 32 bits.
template <typename Left, int Terms, int Bytes, int Rows>
struct Integers : Sums<int32_t, Bytes, Rows> {
  using X = Left;
  using W = int8_t;
  static constexpr int kTerms = Terms;
};

}  // namespace
}  // namespace elmo_fast
