#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::rpc {

/// The part of a list a request asks for; tokens are the position.
struct Page {
  size_t begin = 0, end = 0;
  std::string next_token;
};

inline absl::StatusOr<Page> PageOf(int32_t page_size, const std::string& token, size_t total) {
  if (page_size < 0 || page_size > 1000)
    return InvalidField("page_size", absl::StrCat("is ", page_size, "; allowed 0 (100) to 1000"));
  uint64_t begin = 0;
  if (!token.empty() && !absl::SimpleAtoi(token, &begin))
    return InvalidField("page_token", "did not come from this list");
  Page page;
  page.begin = std::min<size_t>(begin, total);
  page.end =
      std::min<size_t>(page.begin + static_cast<size_t>(page_size == 0 ? 100 : page_size), total);
  if (page.end < total) page.next_token = absl::StrCat(page.end);
  return page;
}

}  // namespace octavo::rpc
