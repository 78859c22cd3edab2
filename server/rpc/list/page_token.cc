#include "server/rpc/list/page_token.h"

#include <cstdint>

#include "absl/strings/escaping.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/model/checksum.h"

namespace octavo::rpc {
namespace {

constexpr char kVersion = 1;
constexpr size_t kHead = 1 + 2 * sizeof(uint32_t);

const std::string& Salt() {
  static const std::string* const salt = new std::string(base::NewId(""));
  return *salt;
}

uint32_t Checksum(absl::string_view of) {
  const std::string& salt = Salt();
  return model::Crc32c(of.data(), of.size(), model::Crc32c(salt.data(), salt.size(), 0));
}

void AppendBytes(uint32_t number, std::string* bytes) {
  for (int shift = 24; shift >= 0; shift -= 8) *bytes += static_cast<char>(number >> shift);
}

absl::Status NotOurs(absl::string_view what) { return InvalidField("page_token", what); }

}  // namespace

std::string MakePageToken(absl::string_view asked, absl::string_view key) {
  std::string body;
  AppendBytes(Checksum(asked), &body);
  body.append(key.data(), key.size());
  std::string bytes(1, kVersion);
  AppendBytes(Checksum(body), &bytes);
  return absl::WebSafeBase64Escape(bytes + body);
}

absl::StatusOr<std::string> ReadPageToken(absl::string_view asked, absl::string_view token) {
  std::string bytes;
  const bool whole = token.size() <= kMostPageTokenBytes &&
                     absl::WebSafeBase64Unescape(token, &bytes) && bytes.size() >= kHead &&
                     absl::WebSafeBase64Escape(bytes) == token && bytes[0] == kVersion;
  const absl::string_view body = whole ? absl::string_view(bytes).substr(5) : "";
  std::string expected;
  if (whole) AppendBytes(Checksum(body), &expected);
  if (!whole || absl::string_view(bytes).substr(1, 4) != expected)
    return NotOurs(
        "does not come from this server, or from before its restart; allowed the next_page_token "
        "of "
        "an answer");
  std::string request;
  AppendBytes(Checksum(asked), &request);
  if (body.substr(0, 4) != request)
    return NotOurs(
        "comes from another list; allowed the next_page_token of the same call with the same "
        "filter, order_by and other fields (page_size may differ)");
  return std::string(body.substr(4));
}

}  // namespace octavo::rpc
