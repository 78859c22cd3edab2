#pragma once

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"

namespace octavo::testing {

template <class T>
const absl::Status& StatusOf(const T& value) {
  if constexpr (std::is_same_v<T, absl::Status>) {
    return value;
  } else {
    return value.status();
  }
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

/// Matches an error by code and a part of its message.
MATCHER_P2(IsError, code, part, "is an error with this code and text") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         std::string(StatusOf(arg).message()).find(part) != std::string::npos;
}

}  // namespace octavo::testing

#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(OCTAVO_STATUS_CONCAT_(result_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(result, lhs, expr) \
  auto result = (expr);                               \
  ASSERT_TRUE(result.ok()) << result.status();        \
  lhs = std::move(result).value()
