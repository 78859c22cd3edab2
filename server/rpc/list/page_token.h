#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::rpc {

/// The texts that stand for the place after a page's last row. A token holds the key of that row,
/// what the request asked for, and a checksum over both with a number that this process has drawn:
/// a token that is damaged, of another request, or of another process is none.
///
///   token = base64url(version, crc32c of the rest, crc32c of the request, key)
///
/// `asked`: the call and all fields of its request but the size and the token of the page.
std::string MakePageToken(absl::string_view asked, absl::string_view key);
/// The key. InvalidArgument (page_token).
absl::StatusOr<std::string> ReadPageToken(absl::string_view asked, absl::string_view token);

/// The largest token: kMostFields texts of an order, and base64url's third.
constexpr size_t kMostPageTokenBytes = 8192;

}  // namespace octavo::rpc
