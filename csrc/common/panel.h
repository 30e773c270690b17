// A float32 product of few rows with a panel of 32 columns: the next panel is fetched while this one is multiplied. Such products are
// bound by streaming W, and a kernel that fetches only what it multiplies waits for memory and arithmetic in turn.
#pragma once

#include <cstdint>

namespace elmo_fast {

// Whether this CPU has AVX-512F, which the kernel is written for.
bool has_panel_kernel();

// c[M, 32] (+)= x[M, K] · panel[K, 32]; `next` is what will be multiplied after, 128 K bytes. Every sum runs over k in order, whatever M.
void multiply_panel(
    int64_t m, int64_t k, const float* x, int64_t ldx, const float* panel, const float* next, float* c, int64_t ldc, bool accumulate);

}  // namespace elmo_fast
