// Checks of the host tests: a failure prints the place and the condition, and ends the program with status 1.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition, ...)                                             \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                  \
      std::fputc('\n', stderr);                                           \
      std::exit(1);                                                       \
    }                                                                     \
  } while (false)
