// The tile instructions in software, after the operations in Intel's manual (SDM volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO,
// TDPBF16PS, TDPBUSD). Instructions that would fault on a CPU fail a CHECK. Include it before common/tiles.h, which then uses no intrinsic.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "check.h"

#define ELMO_TILE_MODEL
#define ELMO_AMX
#define ELMO_AMX_AND_VECTORS

namespace tile_model {

constexpr int kTiles = 8, kMostRows = 16, kMostBytes = 64;

struct Tile {
  int rows = 0, bytes = 0;
  uint8_t data[kMostRows][kMostBytes] = {};
};
struct State {
  bool configured = false;
  int configurations = 0;
  Tile tiles[kTiles];
};
inline thread_local State state;

// A tile that an instruction may name.
inline Tile& tile(int number) {
  CHECK(state.configured, "tile %d: no configuration is loaded", number);
  CHECK(number >= 0 && number < kTiles, "tile %d does not exist", number);
  CHECK(state.tiles[number].rows > 0, "tile %d is not configured", number);
  return state.tiles[number];
}

inline void check_product(const Tile& sums, const Tile& x, const Tile& w) {
  CHECK(&sums != &x && &sums != &w && &x != &w, "the three tiles must differ");
  CHECK(sums.bytes % 4 == 0 && x.bytes % 4 == 0 && w.bytes % 4 == 0, "bytes of a row: %d %d %d", sums.bytes, x.bytes, w.bytes);
  CHECK(sums.rows == x.rows, "rows of sums %d, of x %d", sums.rows, x.rows);
  CHECK(x.bytes / 4 == w.rows, "units of x %d, rows of W %d", x.bytes / 4, w.rows);
  CHECK(sums.bytes == w.bytes, "bytes of sums %d, of W %d", sums.bytes, w.bytes);
}

// Denormals count as zero, on the way in and out.
inline float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value; }
inline float bfloat16(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return flushed(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

}  // namespace tile_model

inline void _tile_release() { tile_model::state = {false, tile_model::state.configurations, {}}; }

inline void _tile_loadconfig(const void* memory) {
  uint8_t bytes[64];
  std::memcpy(bytes, memory, sizeof(bytes));
  CHECK(bytes[0] == 1, "palette %d", bytes[0]);
  CHECK(bytes[1] == 0, "start row %d", bytes[1]);
  for (int i = 2; i < 16; ++i) CHECK(bytes[i] == 0, "reserved byte %d", i);
  tile_model::State next{true, tile_model::state.configurations + 1, {}};
  for (int i = 0; i < 16; ++i) {
    const int width = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8, rows = bytes[48 + i];
    CHECK(i < tile_model::kTiles || (width == 0 && rows == 0), "tile %d does not exist", i);
    CHECK(width <= tile_model::kMostBytes && rows <= tile_model::kMostRows, "tile %d: %d rows of %d bytes", i, rows, width);
    CHECK((width == 0) == (rows == 0), "tile %d: %d rows of %d bytes", i, rows, width);
    if (i < tile_model::kTiles) next.tiles[i].rows = rows, next.tiles[i].bytes = width;
  }
  tile_model::state = next;
}

inline void _tile_zero(int number) { std::memset(tile_model::tile(number).data, 0, sizeof(tile_model::Tile::data)); }

inline void _tile_loadd(int number, const void* base, int64_t stride) {
  auto& tile = tile_model::tile(number);
  std::memset(tile.data, 0, sizeof(tile.data));
  for (int row = 0; row < tile.rows; ++row) std::memcpy(tile.data[row], static_cast<const char*>(base) + row * stride, tile.bytes);
}

inline void _tile_stored(int number, void* base, int64_t stride) {
  const auto& tile = tile_model::tile(number);
  for (int row = 0; row < tile.rows; ++row) std::memcpy(static_cast<char*>(base) + row * stride, tile.data[row], tile.bytes);
}

// Two sums for each column, of the even terms and of the odd ones, then added: rounded to nearest, whatever the thread's mode is.
inline void _tile_dpbf16ps(int to, int left, int right) {
  auto& sums = tile_model::tile(to);
  const auto &x = tile_model::tile(left), &w = tile_model::tile(right);
  tile_model::check_product(sums, x, w);
  for (int row = 0; row < sums.rows; ++row)
    for (int column = 0; column < sums.bytes / 4; ++column) {
      float halves[2] = {};
      for (int k = 0; k < x.bytes / 4; ++k)
        for (int i = 0; i < 2; ++i)
          halves[i] = tile_model::flushed(std::fma(
              tile_model::bfloat16(x.data[row] + 4 * k + 2 * i), tile_model::bfloat16(w.data[k] + 4 * column + 2 * i), halves[i]));
      float sum;
      std::memcpy(&sum, sums.data[row] + 4 * column, sizeof(sum));
      sum = tile_model::flushed(tile_model::flushed(sum) + tile_model::flushed(halves[0] + halves[1]));
      std::memcpy(sums.data[row] + 4 * column, &sum, sizeof(sum));
    }
}

// Bytes of x without a sign times bytes of W with one, added modulo 2^32.
inline void _tile_dpbusd(int to, int left, int right) {
  auto& sums = tile_model::tile(to);
  const auto &x = tile_model::tile(left), &w = tile_model::tile(right);
  tile_model::check_product(sums, x, w);
  for (int row = 0; row < sums.rows; ++row)
    for (int column = 0; column < sums.bytes / 4; ++column) {
      uint32_t sum;
      std::memcpy(&sum, sums.data[row] + 4 * column, sizeof(sum));
      for (int k = 0; k < x.bytes; ++k)
        sum += static_cast<uint32_t>(x.data[row][k] * static_cast<int8_t>(w.data[k / 4][4 * column + k % 4]));
      std::memcpy(sums.data[row] + 4 * column, &sum, sizeof(sum));
    }
}
