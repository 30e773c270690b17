// char_cnn's backward on the GPU (char_cnn/backward.h) over virtual blocks: its index maps, exhaustively, its rounding, and
// all of it against a loop in double precision. Every array has its exact size on the heap.
#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "char_cnn/backward.h"
#include "check.h"
#include "virtual_block.h"

using namespace elmo_fast;
using namespace elmo_fast::char_cnn;

using Shapes = std::vector<std::pair<int, int>>;  // (width, filters)
static const Shapes kElmo{{1, 32}, {2, 32}, {3, 64}, {4, 128}, {5, 256}, {6, 512}, {7, 1024}};
static const Shapes kAwkward{{1, 5}, {2, 33}, {3, 64}, {3, 1}, {7, 70}, {10, 3}, {1, 32}};

static Params shaped(const Shapes& shapes, int64_t rows, int64_t characters, int64_t size) {
  Params p{};
  p.rows = rows, p.characters = characters, p.size = size, p.slots = 12;
  p.widths = static_cast<int32_t>(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) p.width[i].width = shapes[i].first, p.width[i].filters = shapes[i].second;
  lay_out(p);
  return p;
}

static void every_column_has_one_owner(const Shapes& shapes) {
  const Params p = shaped(shapes, 700, 262, 16);
  std::vector<int> owned(p.columns), weights(p.columns * p.size);
  int64_t features = 0;
  for (int unit = 0; unit < p.units; ++unit)
    for (int t = 0; t < kThreads; ++t) {
      const Owned o = owned_by(p, unit, t);
      if (o.width < 0) continue;
      const Width& w = p.width[o.width];
      CHECK(o.filter >= 0 && o.filter < w.filters && o.tap >= 0 && o.tap < w.width, "unit %d thread %d", unit, t);
      const int64_t column = column_of(w, o.filter, o.tap);
      CHECK(column >= 0 && column < p.columns, "column %ld", column);
      ++owned[column];
      const Owned back = owner_of(p, column);
      CHECK(back.width == o.width && back.filter == o.filter && back.tap == o.tap, "column %ld", column);
      int64_t first = 0;
      for (int i = 0; i < o.width; ++i) first += static_cast<int64_t>(p.width[i].filters) * p.width[i].width * p.size;
      for (int64_t e = 0; e < p.size; ++e) ++weights[first + weight_at(p, o, e)];
    }
  for (const int times : owned) CHECK(times == 1, "a column is owned %d times", times);
  for (const int times : weights) CHECK(times == 1, "a weight is owned %d times", times);
  for (const auto& [width, filters] : shapes) features += filters;
  CHECK(p.features == features, "%ld features", p.features);
}

static void parts_cover_everything_once() {
  for (int64_t rows = 0; rows < 3000; ++rows) {
    const int splits = splits_of(rows);
    CHECK(splits >= 1 && splits <= kMaxSplits && first_row(rows, 0, splits) == 0 && first_row(rows, splits, splits) == rows, "%ld", rows);
    for (int s = 0; s < splits; ++s) CHECK(first_row(rows, s, splits) <= first_row(rows, s + 1, splits), "%ld", rows);
  }
  for (int64_t characters = 0; characters < 600; ++characters) {
    CHECK(first_character(characters, 0) == 0 && first_character(characters, kSlices) == characters, "%ld", characters);
    for (int s = 0; s < kSlices; ++s) CHECK(first_character(characters, s) <= first_character(characters, s + 1), "%ld", characters);
  }
  for (int width = 1; width < 100; ++width) {
    CHECK(first_tap(width, 0) == 0 && first_tap(width, groups_of(width)) == width, "%d", width);
    for (int g = 0; g < groups_of(width); ++g) {
      const int taps = first_tap(width, g + 1) - first_tap(width, g);
      CHECK(taps >= 1 && taps <= kTaps, "group %d of width %d has %d", g, width, taps);
    }
  }
}

// By value, not by bits: to a multiple of the unit in the last place of a format with `digits` significand bits.
static double rounded_by_value(float x, int digits, int least_exponent, double most) {
  if (!std::isfinite(x) || x == 0) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), least_exponent) - digits + 1);
  const double result = std::nearbyint(x / unit) * unit;
  return std::fabs(result) > most ? std::copysign(std::numeric_limits<double>::infinity(), result) : result;
}
static double rounded_by_value(float x, Rounding rounding) {
  if (rounding == Rounding::BFloat16) return rounded_by_value(x, 8, -126, 0x1.fep127);
  return rounding == Rounding::Float16 ? rounded_by_value(x, 11, -14, 65504) : x;
}

static void rounding_is_to_nearest_even() {
  std::mt19937 random(2);
  const auto check = [](float x) {
    for (const auto rounding : {Rounding::Float32, Rounding::BFloat16, Rounding::Float16}) {
      if (rounding == Rounding::BFloat16 && std::fabs(x) < 0x1p-126f) continue;  // torch keeps them, the value test does not know them
      const double found = rounded_to(x, rounding), wanted = rounded_by_value(x, rounding);
      CHECK(found == wanted, "%a to %d gives %a, wanted %a", x, static_cast<int>(rounding), found, wanted);
    }
  };
  for (int i = 0; i < 300'000; ++i) {
    const float x = float_of(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) check(x);
    check(std::ldexp(static_cast<float>(random()) / 4294967296.0f - 0.5f, static_cast<int>(random() % 60) - 40));
  }
  for (const float x : {0.0f, -0.0f, 65504.0f, 65519.996f, 65520.0f, -65520.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-24f, 0x1.004p0f, 0x1.00cp0f, 0x1p-14f,
                        0x1.ffcp-15f, 0x1.fffp-15f, 0x1.01p0f, 0x1.03p0f, std::numeric_limits<float>::infinity()})
    check(x);
  CHECK(std::isnan(rounded_to(std::nanf(""), Rounding::Float16)) && std::isnan(rounded_to(std::nanf(""), Rounding::BFloat16)), "NaN");
}

struct Case {
  Shapes shapes;
  int64_t rows, characters, size;
  bool tanh = false, wild = false;  // wild: ids and winners anywhere, as corrupted memory would hold them
  int64_t count = -1;               // -1: no pointer
  Rounding rounding = Rounding::Float32;
  bool need_embedding = true, need_weights = true;
};

// Inputs and results of one backward pass.
template <typename Id>
struct Pass {
  Params p;
  std::vector<float> grad, out, embedding, table, filters, sums, d_embedding;
  std::vector<int16_t> winners;
  std::vector<Id> ids;
  std::vector<std::vector<float>> weights, d_weights, d_biases;
  int64_t count;

  Pass(const Case& c, uint32_t seed) : p(shaped(c.shapes, c.rows, c.characters, c.size)), count(c.count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const float nan = std::nanf("");
    const auto fill = [&](std::vector<float>& v, int64_t n) {
      v.resize(n);
      for (float& x : v) x = normal(random);
    };
    fill(grad, p.rows * p.features), fill(out, p.rows * p.features), fill(embedding, p.characters * p.size);
    for (float& x : out) x = c.tanh ? std::tanh(x) : std::max(x, 0.0f);
    winners.resize(p.rows * p.features), ids.resize(p.rows * p.slots);
    for (Id& id : ids) id = c.wild ? static_cast<Id>(random() * 4294967296ULL + random()) : static_cast<Id>(random() % p.characters);
    for (int i = 0; i < p.widths; ++i) {
      const Width& w = p.width[i];
      for (int64_t row = 0; row < p.rows; ++row)
        for (int f = 0; f < w.filters; ++f)
          winners[row * p.features + w.feature + f] =
              c.wild ? static_cast<int16_t>(random()) : static_cast<int16_t>(random() % (p.slots - w.width + 1));
      fill(weights.emplace_back(), static_cast<int64_t>(w.filters) * w.width * p.size);
      d_weights.emplace_back(c.need_weights ? weights.back().size() : 0, nan);
      d_biases.emplace_back(c.need_weights ? w.filters : 0, nan);
    }
    table.assign(p.characters * p.vectors() * kVector, nan), filters.assign(p.vectors() * kVector * p.columns, nan);
    sums.assign(p.splits * p.characters * p.columns, nan), d_embedding.assign(c.need_embedding ? embedding.size() : 0, nan);
    point(c);
  }

  void point(const Case& c) {
    p.count = c.count < 0 ? nullptr : &count;
    p.grad = grad.data(), p.out = out.data(), p.winners = winners.data(), p.ids = ids.data();
    p.wide_ids = sizeof(Id) == 8, p.tanh = c.tanh, p.rounding = c.rounding;
    p.need_embedding = c.need_embedding, p.need_weights = c.need_weights;
    p.embedding = embedding.data(), p.table = table.data(), p.filters = filters.data(), p.sums = sums.data();
    p.d_embedding = d_embedding.data();
    for (int i = 0; i < p.widths; ++i) {
      p.width[i].weight = weights[i].data(), p.width[i].d_weight = d_weights[i].data(), p.width[i].d_bias = d_biases[i].data();
    }
  }

  void sum(int unit, int split, int tile, int thread, float* bins) {
    const bool tiled = p.tiles > 1;
    if (p.tanh)
      tiled ? sum_rows<Kind<true, true>>(p, unit, split, tile, thread, bins) : sum_rows<Kind<true, false>>(p, unit, split, tile, thread, bins);
    else
      tiled ? sum_rows<Kind<false, true>>(p, unit, split, tile, thread, bins) : sum_rows<Kind<false, false>>(p, unit, split, tile, thread, bins);
  }

  // The launches of backward.cu, blocks in a shuffled order.
  void run() {
    for (int64_t i = 0; i < arranged_count(p); ++i) arrange(p, i);
    std::mt19937 random(3);
    std::vector<int> blocks(static_cast<int64_t>(p.units) * p.splits * p.tiles);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const int b : blocks) {
      std::vector<float> bins(kBins * kThreads, std::nanf(""));
      const int unit = b % p.units, split = b / p.units % p.splits, tile = b / p.units / p.splits;
      for (int t = 0; t < kThreads; ++t) sum(unit, split, tile, t, bins.data());
    }
    VirtualBlock<WeightLane> block(kWeightThreads, 1);
    const auto weight_scratch = std::make_unique<WeightScratch>();
    for (int64_t b = 0; b < ceil_div(p.columns, kLanes); ++b) weight_gradients(block, p, b, *weight_scratch);
    if (!p.need_embedding) return;
    VirtualBlock<EmbeddingLane> other(kEmbeddingThreads, 2);
    const auto scratch = std::make_unique<EmbeddingScratch>();
    for (int64_t b = 0; b < ceil_div(p.characters, kCharacters); ++b)
      for (int64_t v = 0; v < p.vectors(); ++v) embedding_gradients(other, p, b * kCharacters, v, *scratch);
  }
};

// One thread writes a bias, from the filter's first position: all positions have the same sum, but not to the last bit.
template <typename Id>
static void biases_come_from_the_first_position(const Pass<Id>& pass) {
  const Params& p = pass.p;
  for (int i = 0; p.need_weights && i < p.widths; ++i)
    for (int f = 0; f < p.width[i].filters; ++f) {
      float sum = 0;
      for (int slice = 0; slice < kSlices; ++slice) {
        float part = 0;
        for (int64_t c = first_character(p.characters, slice); c < first_character(p.characters, slice + 1); ++c)
          part += p.sums[c * p.columns + column_of(p.width[i], f, 0)];
        sum = slice == 0 ? part : sum + part;
      }
      CHECK(pass.d_biases[i][f] == sum, "bias %d of width %d is %a, wanted %a", f, p.width[i].width, pass.d_biases[i][f], sum);
    }
}

static void close(const char* name, const std::vector<float>& found, const std::vector<double>& wanted) {
  double scale = 1;
  for (const double x : wanted) scale = std::max(scale, std::fabs(x));
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(std::fabs(found[i] - wanted[i]) < 4e-6 * scale, "%s[%zu] is %.9g, wanted %.9g", name, i, found[i], wanted[i]);
}

template <typename Id>
static void compare(const Case& c, uint32_t seed) {
  Pass<Id> pass(c, seed);
  pass.run();
  const Params& p = pass.p;
  const int64_t rows = c.count < 0 ? p.rows : std::min(c.count, p.rows);
  std::vector<double> d_embedding(pass.embedding.size());
  for (int i = 0; i < p.widths; ++i) {
    const Width& w = p.width[i];
    std::vector<double> d_weight(pass.weights[i].size()), d_bias(w.filters);
    for (int64_t row = 0; row < rows; ++row)
      for (int f = 0; f < w.filters; ++f) {
        const int64_t at = row * p.features + w.feature + f, last = p.slots - w.width;
        const double y = pass.out[at], g = c.tanh ? pass.grad[at] * (1 - y * y) : (y > 0 ? pass.grad[at] : 0.0);
        const int64_t start = std::min<int64_t>(static_cast<uint16_t>(pass.winners[at]), last);
        d_bias[f] += g;
        for (int j = 0; j < w.width; ++j) {
          const int64_t id = std::min<int64_t>(static_cast<uint32_t>(pass.ids[row * p.slots + start + j]), p.characters - 1);
          for (int64_t e = 0; e < p.size; ++e) {
            const int64_t weight = (f * p.size + e) * w.width + j;
            d_weight[weight] += g * rounded_by_value(pass.embedding[id * p.size + e], c.rounding);
            d_embedding[id * p.size + e] += g * rounded_by_value(pass.weights[i][weight], c.rounding);
          }
        }
      }
    close("d_weight", pass.d_weights[i], d_weight);
    close("d_bias", pass.d_biases[i], d_bias);
  }
  close("d_embedding", pass.d_embedding, d_embedding);
  biases_come_from_the_first_position(pass);
}

// A character that no winning window holds may have any embedding, NaN too; one that does shows.
static void nan_stays_where_it_belongs() {
  Pass<int64_t> pass({{{2, 5}}, 20, 9, 3}, 4);
  for (auto& id : pass.ids) id %= 8;  // character 8 never occurs
  for (int e = 0; e < 3; ++e) pass.embedding[8 * 3 + e] = std::nanf("");
  pass.grad[1] = std::nanf(""), pass.out[1] = 1;  // of feature 1
  pass.run();
  for (int f = 0; f < 5; ++f) {
    CHECK(std::isnan(pass.d_biases[0][f]) == (f == 1), "bias %d", f);
    for (int i = 0; i < 6; ++i) CHECK(std::isnan(pass.d_weights[0][f * 6 + i]) ? f == 1 : true, "weight of filter %d", f);
  }
  for (int e = 0; e < 3; ++e) CHECK(pass.d_embedding[8 * 3 + e] == 0, "character 8");
}

int main() {
  every_column_has_one_owner(kElmo);
  every_column_has_one_owner(kAwkward);
  every_column_has_one_owner(Shapes(kMaxWidths, {2, 3}));
  parts_cover_everything_once();
  rounding_is_to_nearest_even();
  for (const int64_t rows : {0, 1, 7, 8, 9, 16, 17, 23, 24, 25, 33, 81}) compare<int64_t>({kAwkward, rows, 31, 5}, 1);
  for (const bool tanh : {false, true}) compare<int32_t>({kAwkward, 40, 31, 16, tanh}, 2);
  for (const int64_t rows : {512, 513, 1100}) compare<int64_t>({{{3, 5}, {7, 2}}, rows, 31, 16}, 3);  // one, two and three splits
  for (const int64_t characters : {1, 3, 262, 264, 265, 600}) compare<int64_t>({{{2, 33}}, 50, characters, 4}, 5);  // tiles
  for (const int64_t size : {1, 15, 17, 33}) compare<int64_t>({{{3, 7}}, 30, 20, size}, 6);                         // vectors
  compare<int64_t>({{{3, 7}}, 1100, 20, 33}, 6);  // splits are summed once, not once a vector
  for (const int64_t count : {0, 1, 19, 30, 1000}) compare<int64_t>({{{3, 7}, {1, 3}}, 30, 20, 16, false, false, count}, 7);
  for (const auto rounding : {Rounding::BFloat16, Rounding::Float16})
    compare<int64_t>({kAwkward, 20, 31, 16, true, false, -1, rounding}, 8);
  compare<int64_t>({kAwkward, 60, 31, 5, false, true}, 9);
  compare<int32_t>({kAwkward, 60, 300, 5, true, true}, 10);
  for (const bool embedding : {false, true}) compare<int64_t>({kAwkward, 600, 31, 5, false, false, -1, Rounding::Float32, embedding, !embedding}, 11);
  nan_stays_where_it_belongs();
}
