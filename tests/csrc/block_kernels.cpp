// The products of 64 columns, on each way of holding operands, against sums in double; linked with the files of the kernels. No torch.
// With no argument the kernels that every CPU has (SSE2, NEON), else those of the instruction sets that are named.
#include "check.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/block_kernels.h"
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

void check_all(const BlockKernels& kernels, int64_t m, int64_t k) {
  check<float, float, float>("float32", kernels.float32, m, k, 1, drawn, drawn, [](float w) { return double{w}; });
  check<double, double, double>(
      "float64", kernels.float64, m, k, 1, [] { return double{drawn()}; }, [] { return double{drawn()}; }, [](double w) { return w; });
  check<float, uint16_t, float>(
      "bfloat16", kernels.bfloat16_widened, m, k, 1, drawn, [] { return bfloat16_bits(drawn()); },
      [](uint16_t w) { return double{widened(w, false)}; });
  check<float, uint16_t, float>(
      "float16", kernels.float16_widened, m, k, 1, drawn, [] { return static_cast<uint16_t>(std::rand() & 0xfbff & 0xbfff); },
      [](uint16_t w) { return double{widened(w, true)}; });
}

void check_int8(const char* name, BlockKernel kernel, int64_t m, int64_t k) {
  check<uint8_t, int8_t, int32_t>(
      name, kernel, m, k, 4, [] { return static_cast<uint8_t>(std::rand()); }, [] { return static_cast<int8_t>(std::rand() % 255 - 127); },
      [](int8_t w) { return double(w); });
}

void check_set(const std::string& name, int64_t m, int64_t k) {
  if (name == "generic") check_all(kGenericKernels, m, k), check_int8("int8", kGenericKernels.int8, m, k);
#if defined(__x86_64__)
  if (name == "avx2") check_all(kAvx2Kernels, m, k), check_int8("int8, AVX2", kAvx2Kernels.int8, m, k);
  if (name == "avx2_vnni") check_int8("int8, AVX_VNNI", kAvx2VnniKernel, m, k);
  if (name == "avx512") check_all(kAvx512Kernels, m, k);
  if (name == "avx512_vnni") check_int8("int8, AVX512_VNNI", kAvx512VnniKernel, m, k);
#endif
}

}  // namespace

int main(int count, char** names) {
  for (const int64_t m : {1, 5, 12, 13, 30})
    for (const int64_t k : {4, 36, 300, 1032}) {
      if (count == 1) check_set("generic", m, k);
      for (int i = 1; i < count; ++i) check_set(names[i], m, k);
    }
}
