// The products that every CPU has (SSE2, NEON), on each way of holding operands, against sums in double. No torch.
#include "check.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/block_kernels_generic.cpp"
#include "common/simd.h"

using namespace elmo_fast;

namespace {

float drawn() { return static_cast<float>(std::rand() % 2001 - 1000) / 256.0f; }
float widened(uint16_t bits, bool half) {
  if (!half) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// W [K, 64] at (k, column): the packed place of a form whose units hold `terms` terms.
int64_t place(int64_t k, int64_t column, int64_t depth, int64_t terms) {
  return column / kGroup * depth * kGroup + k / terms * kGroup * terms + column % kGroup * terms + k % terms;
}

template <typename X, typename W, typename C>
void check(const char* name, BlockKernel kernel, int64_t m, int64_t k, int64_t terms, X (*draw_x)(), W (*draw_w)(), double (*value)(W)) {
  std::vector<X> x(m * k);
  std::vector<W> w(k * kBlock);
  std::vector<C> c(m * kBlock, C(3));
  for (auto& each : x) each = draw_x();
  for (auto& each : w) each = draw_w();
  for (const bool accumulate : {false, true}) {
    const auto before = c;
    kernel({m, k, x.data(), k, w.data(), k * kGroup, false, c.data(), kBlock, accumulate});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < kBlock; ++j) {
        double sum = accumulate ? static_cast<double>(before[i * kBlock + j]) : 0.0, size = std::fabs(sum);
        for (int64_t t = 0; t < k; ++t) {
          const double product = static_cast<double>(x[i * k + t]) * value(w[place(t, j, k, terms)]);
          sum += product, size += std::fabs(product);
        }
        const double bound = std::is_same_v<C, int32_t> ? 0.0 : std::is_same_v<C, double> ? 1e-13 * size : 1e-5 * size;
        CHECK(std::fabs(static_cast<double>(c[i * kBlock + j]) - sum) <= bound, "%s %ld %ld", name, static_cast<long>(m), static_cast<long>(k));
      }
  }
}

}  // namespace

int main() {
  const auto& kernels = kGenericKernels;
  for (const int64_t m : {1, 5, 12, 13, 30})
    for (const int64_t k : {4, 36, 300}) {
      check<float, float, float>("float32", kernels.float32, m, k, 1, drawn, drawn, [](float w) { return double{w}; });
      check<double, double, double>(
          "float64", kernels.float64, m, k, 1, [] { return double{drawn()}; }, [] { return double{drawn()}; }, [](double w) { return w; });
      check<float, uint16_t, float>(
          "bfloat16", kernels.bfloat16_widened, m, k, 1, drawn, [] { return bfloat16_bits(drawn()); },
          [](uint16_t w) { return double{widened(w, false)}; });
      check<float, uint16_t, float>(
          "float16", kernels.float16_widened, m, k, 1, drawn, [] { return static_cast<uint16_t>(std::rand() & 0xfbff & 0xbfff); },
          [](uint16_t w) { return double{widened(w, true)}; });
      check<uint8_t, int8_t, int32_t>(
          "int8", kernels.int8, m, k, 4, [] { return static_cast<uint8_t>(std::rand()); },
          [] { return static_cast<int8_t>(std::rand() % 255 - 127); }, [](int8_t w) { return double(w); });
    }
}
