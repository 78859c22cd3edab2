#pragma once

#include <stdexcept>

// The TOML parser asserts where it meets some texts that are no TOML ("[[[a]]]", "[=", "a = }"),
// which would end the process; or, without assertions, continues with undefined behaviour. This
// header makes the parser's assertions throw std::logic_error. Every file that uses the parser
// includes it by this header: its functions are inline, and the program has one copy of each.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) \
  ((expr) ? static_cast<void>(0) : throw std::logic_error("assertion: " #expr))
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wterminate"
#endif
#include "toml++/toml.h"
#pragma GCC diagnostic pop
#pragma pop_macro("NDEBUG")
