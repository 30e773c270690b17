// One decimal number of a text, correctly rounded to float32: by one division where that is exact, else by std::from_chars.
#pragma once

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace elmo_fast {

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
inline unsigned digit_of(char c) { return static_cast<unsigned>(static_cast<unsigned char>(c)) - '0'; }  // 10 or more: no digit

// Up to 19 digits fit 64 bits; `digits` counts all, leading zeros too.
inline const char* read_digits(const char* at, const char* end, uint64_t& mantissa, int& digits) {
  for (unsigned digit; at < end && (digit = digit_of(*at)) < 10; ++at, ++digits) mantissa = 10 * mantissa + digit;
  return at;
}

// A mantissa below 2^53 and a power of ten up to 22 are exact doubles, so that their quotient is rounded once. To float32 it is then
// rounded again, which is wrong at most where the double lies in the middle of two floats; and below the normal floats.
inline bool quotient(uint64_t mantissa, int decimals, float& value) {
  if (mantissa >> 53 || decimals > 22) return false;
  const double exact = static_cast<double>(mantissa) / kPowersOfTen[decimals];
  if ((std::bit_cast<uint64_t>(exact) & 0x1fffffffu) == 0x10000000u || (exact < 1e-37 && mantissa != 0)) return false;
  value = static_cast<float>(exact);
  return true;
}

// The number that begins at `at`; returns where it ends, or nullptr where there is no finite number of float32 up to a blank or `end`.
inline const char* read_number(const char* at, const char* end, float& value) {
  const bool minus = at < end && *at == '-';
  if (at < end && (*at == '-' || *at == '+')) ++at;
  const char* const begin = at;
  uint64_t mantissa = 0;
  int digits = 0, whole;
  at = read_digits(at, end, mantissa, digits);
  whole = digits;
  if (at < end && *at == '.') at = read_digits(at + 1, end, mantissa, digits);
  if (digits == 0) return nullptr;
  if (at == end || is_blank(*at)) {
    if (digits <= 19 && quotient(mantissa, digits - whole, value)) {
      value = minus ? -value : value;
      return at;
    }
  } else if (*at != 'e' && *at != 'E') {
    return nullptr;
  }
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range) {  // too large, or so small that it is 0
    if (at < end && !is_blank(*at) ? at + 1 == end || at[1] != '-' : whole > 38) return nullptr;
    value = 0;
  } else if (error != std::errc()) {
    return nullptr;
  }
  if ((stop != end && !is_blank(*stop)) || !std::isfinite(value)) return nullptr;
  value = minus ? -value : value;
  return stop;
}

}  // namespace elmo_fast
