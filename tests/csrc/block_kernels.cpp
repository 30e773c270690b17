// The products of 64 columns, for each form of operands, against sums in double; linked with the files of the kernels. No torch.
// With no argument the kernels that every CPU has (SSE2, NEON) and those of tiles, whose instructions are in software; else those of the
// instruction sets that are named.
#include "tile_model.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/block_kernels.h"
#include "common/simd.h"
#include "common/tiles.cpp"

using namespace elmo_fast;

namespace {

// Numbers between pages that nobody may touch: at their end, or at their beginning.
template <typename T>
class Guarded {
 public:
  Guarded(size_t count, bool at_end) : count_(count), bytes_((count * sizeof(T) + kPage - 1) / kPage * kPage) {
    pages_ = static_cast<char*>(mmap(nullptr, bytes_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(pages_ != MAP_FAILED && mprotect(pages_ + kPage, bytes_, PROT_READ | PROT_WRITE) == 0, "no memory");
    data_ = reinterpret_cast<T*>(pages_ + kPage + (at_end ? bytes_ - count * sizeof(T) : 0));
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() { munmap(pages_, bytes_ + 2 * kPage); }
  T* data() { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  static constexpr size_t kPage = 65536;  // no system has larger ones
  size_t count_, bytes_;
  char* pages_;
  T* data_;
};

float drawn() { return static_cast<float>(std::rand() % 2001 - 1000) / 256.0f; }
double widened(uint16_t bits, bool half) {
  if (!half) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
      : exponent == 0                     ? std::ldexp(fraction, -24)
                                          : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// W [K, 64] at (k, column): the packed place of a form whose units hold `terms` terms.
int64_t place(int64_t k, int64_t column, int64_t depth, int64_t terms) {
  return column / kGroup * depth * kGroup + k / terms * kGroup * terms + column % kGroup * terms + k % terms;
}

// Random operands of one form, and their values.
template <typename T>
struct Held {
  T (*draw)();
  double (*value)(T);
  T infinity, nan;
};
template <typename T>
const Held<T> kWhole = {
    [] { return static_cast<T>(drawn()); }, [](T x) { return double{x}; }, std::numeric_limits<T>::infinity(),
    std::numeric_limits<T>::quiet_NaN()};
const Held<uint16_t> kBFloat16 = {
    [] { return bfloat16_bits(drawn()); }, [](uint16_t x) { return widened(x, false); }, 0x7f80, 0x7fc0};
const Held<uint16_t> kFloat16 = {
    [] { return static_cast<uint16_t>(std::rand() & 0xfbff & 0xbfff); }, [](uint16_t x) { return widened(x, true); }, 0x7c00, 0x7e00};
template <typename T>
const Held<T> kInteger = {
    [] { return static_cast<T>(std::is_unsigned_v<T> ? std::rand() : std::rand() % 255 - 127); }, [](T x) { return double(x); }, 0, 0};

struct Shape {
  int64_t m, k;
  bool at_end, special;  // special: an infinity in the last row of x, a NaN in the first column of W
};

template <typename C>
void check_sum(const char* name, const Shape& shape, C found, double sum, double size) {
  const double bound = std::is_same_v<C, int32_t> ? 0.0 : std::is_same_v<C, double> ? 1e-13 * size : 1e-5 * size;
  const bool same = std::isfinite(sum) ? std::fabs(static_cast<double>(found) - sum) <= bound
                                       : std::isnan(sum) ? found != found : static_cast<double>(found) == sum;
  CHECK(same, "%s %ld %ld: %g, not %g", name, static_cast<long>(shape.m), static_cast<long>(shape.k), double(found), sum);
}

template <typename C, typename X, typename W>
void check(const char* name, BlockKernel kernel, const Shape& shape, int64_t terms, const Held<X>& of_x, const Held<W>& of_w) {
  const int64_t m = shape.m, k = shape.k, ldx = k + terms, ldc = kBlock + 3;
  Guarded<X> x((m - 1) * ldx + k, shape.at_end);
  Guarded<W> w(k * kBlock, shape.at_end);
  Guarded<C> c((m - 1) * ldc + kBlock, shape.at_end);
  for (auto& each : x) each = of_x.draw();
  for (auto& each : w) each = of_w.draw();
  for (auto& each : c) each = C(3);
  if (shape.special) x[(m - 1) * ldx + k - 1] = of_x.infinity, w[0] = of_w.nan;
  std::vector<double> rows(m * k), columns(kBlock * k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t t = 0; t < k; ++t) rows[i * k + t] = of_x.value(x[i * ldx + t]);
  for (int64_t j = 0; j < kBlock; ++j)
    for (int64_t t = 0; t < k; ++t) columns[j * k + t] = of_w.value(w[place(t, j, k, terms)]);
  for (const bool accumulate : {false, true}) {
    const std::vector<C> before(c.begin(), c.end());
    kernel({m, k, x.data(), ldx, w.data(), k * kGroup, accumulate, c.data(), ldc, accumulate});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < kBlock; ++j) {
        double sum = accumulate ? static_cast<double>(before[i * ldc + j]) : 0.0, size = std::fabs(sum);
        const double *row = &rows[i * k], *column = &columns[j * k];
        for (int64_t t = 0; t < k; ++t) sum += row[t] * column[t], size += std::fabs(row[t] * column[t]);
        check_sum(name, shape, c[i * ldc + j], sum, size);
      }
    for (int64_t i = 0; i + 1 < m; ++i)
      for (int64_t j = kBlock; j < ldc; ++j) CHECK(c[i * ldc + j] == C(3), "%s writes past its columns", name);
  }
}

void check_all(const BlockKernels& kernels, const Shape& shape) {
  check<double>("float64", kernels.float64, shape, 1, kWhole<double>, kWhole<double>);
  check<float>("float32", kernels.float32, shape, 1, kWhole<float>, kWhole<float>);
  check<float>("bfloat16", kernels.bfloat16_widened, shape, 1, kWhole<float>, kBFloat16);
  check<float>("float16", kernels.float16_widened, shape, 1, kWhole<float>, kFloat16);
  check<int32_t>("int8", kernels.int8_widened, shape, 2, kInteger<int16_t>, kInteger<int8_t>);
}
void check_pairs(const char* name, BlockKernel kernel, const Shape& shape) { check<float>(name, kernel, shape, 2, kBFloat16, kBFloat16); }
void check_quads(const char* name, BlockKernel kernel, const Shape& shape) {
  check<int32_t>(name, kernel, shape, 4, kInteger<uint8_t>, kInteger<int8_t>);
}

void check_tiles(const Shape& shape) {
  check_pairs("bfloat16, tiles", multiply_bfloat16_tiles, shape);
  check_quads("int8, tiles", multiply_int8_tiles, shape);
  release_tiles();
}

// Products in steps, as between the cells of an LSTM.
void check_steps(int64_t m, int64_t k) {
  Guarded<uint16_t> x(m * k, true), w(k * kBlock, true);
  Guarded<float> c(m * kBlock, true);
  for (auto& each : x) each = kBFloat16.draw();
  for (auto& each : w) each = kBFloat16.draw();
  const TileProduct product{
      m, 2 * k, reinterpret_cast<const char*>(x.data()), 2 * k, reinterpret_cast<const char*>(w.data()), 2 * k * kGroup, c.data()};
  set_tile_shapes(m);
  for (int64_t i = 0; i < product.steps(); ++i) product.step(i);
  std::vector<float> whole(m * kBlock);
  multiply_bfloat16_tiles({m, k, x.data(), k, w.data(), k * kGroup, false, whole.data(), kBlock, false});
  release_tiles();
  for (int64_t i = 0; i < m * kBlock; ++i) CHECK(c[i] == whole[i], "steps: %g, not %g", c[i], whole[i]);
}

void check_configurations() {
  const int before = tile_model::state.configurations;
  set_tile_shapes(20), set_tile_shapes(20);
  CHECK(tile_model::state.configurations == before + 1, "the same shapes were loaded twice");
  set_tile_shapes(20, 8), release_tiles(), set_tile_shapes(20, 8);
  CHECK(tile_model::state.configurations == before + 3, "a release, or another step, needs a new configuration");
  release_tiles();
}

void check_set(const std::string& name, const Shape& shape) {
  if (name == "generic") check_all(kGenericKernels, shape);
#if defined(__x86_64__)
  if (name == "avx2") check_all(kAvx2Kernels, shape);
  if (name == "avx2_vnni") check_quads("int8, AVX_VNNI", kAvx2VnniKernel, shape);
  if (name == "avx512") check_all(kAvx512Kernels, shape);
  if (name == "avx512_vnni") check_quads("int8, AVX512_VNNI", kAvx512VnniKernel, shape);
  if (name == "avx512_bf16") check_pairs("bfloat16, AVX512_BF16", kAvx512Bf16Kernel, shape);
#endif
}

}  // namespace

int main(int count, char** names) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 30, 33})
    for (const int64_t k : {4, 36, 100, 300, 1032}) {
      if (k == 1032 && m != 1 && m != 13 && m != 33) continue;  // more units than a partial sum has: a few shapes show it
      const bool odd = (m + k / 4) % 2;  // each of the two at half of the shapes
      const Shape shape{m, k, odd, (m + k / 4) % 4 >= 2};
      if (count == 1) check_set("generic", shape), check_tiles(shape);
      for (int i = 1; i < count; ++i) check_set(names[i], shape);
    }
  if (count > 1) return 0;
  for (const int64_t m : {1, 15, 16, 17, 31, 32})
    for (const int64_t k : {32, 96}) check_steps(m, k);
  check_configurations();
}
