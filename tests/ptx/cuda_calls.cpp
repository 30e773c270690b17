// What csrc/<op>/cuda.cpp does with tensors, of addresses: it fills the parameters and calls the launcher.
#include <cmath>

#include "char_cnn/backward.cuh"
#include "log_uniform_sample/sample.cuh"

using namespace elmo_fast;

extern "C" {

// Bytes of the bitmap in global memory; -1 after an error.
int64_t sampler_bytes(int64_t num_words) {
  size_t bytes = 0;
  return log_uniform::workspace_bytes(num_words, &bytes) == cudaSuccess ? static_cast<int64_t>(bytes) : -1;
}

int sampler_wave() { return log_uniform::kWave; }

int sampler_launch(
    int64_t num_samples, int64_t num_words, uint64_t seed, uint64_t offset, const int64_t* seed_more, const int64_t* offset_more,
    uint32_t* bitmap, int64_t* ids, int64_t* tries, int64_t limit) {
  return log_uniform::launch(
      {num_samples, num_words, std::log1p(static_cast<double>(num_words)), seed, offset, seed_more, offset_more, bitmap, ids, tries,
       limit > 0 ? limit : kMaxTries},
      nullptr);
}

// The shape of one pass; shapes: width and filters of each. sizes: floats of table, filters and sums.
void* char_cnn_describe(int64_t rows, int64_t slots, int64_t characters, int64_t size, int widths, const int64_t* shapes, int64_t* sizes) {
  static char_cnn::Params p;
  p = {};
  p.rows = rows, p.slots = slots, p.characters = characters, p.size = size, p.widths = widths;
  for (int i = 0; i < widths; ++i)
    p.width[i].width = static_cast<int32_t>(shapes[2 * i]), p.width[i].filters = static_cast<int32_t>(shapes[2 * i + 1]);
  char_cnn::lay_out(p);
  sizes[0] = p.vectors() * char_cnn::kVector * p.characters, sizes[1] = p.vectors() * char_cnn::kVector * p.columns;
  sizes[2] = char_cnn::workspace_floats(p) - sizes[0] - sizes[1];
  return &p;
}

int char_cnn_launch(
    char_cnn::Params* p, const int64_t* count, const float* grad, const float* out, const int16_t* winners, const void* ids,
    bool wide_ids, bool tanh, int rounding, const float* embedding, float* d_embedding, const float* const* weights,
    float* const* d_weights, float* const* d_biases, float* table, float* filters, float* sums) {
  p->count = count, p->grad = grad, p->out = out, p->winners = winners, p->ids = ids, p->wide_ids = wide_ids, p->tanh = tanh;
  p->rounding = static_cast<Rounding>(rounding), p->embedding = embedding, p->d_embedding = d_embedding;
  p->need_embedding = d_embedding != nullptr, p->need_weights = d_weights != nullptr;
  p->table = table, p->filters = filters, p->sums = sums;
  for (int i = 0; i < p->widths; ++i) {
    p->width[i].weight = weights[i];
    if (p->need_weights) p->width[i].d_weight = d_weights[i], p->width[i].d_bias = d_biases[i];
  }
  return char_cnn::launch(*p, nullptr);
}
}
