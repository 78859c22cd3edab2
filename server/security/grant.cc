#include "server/security/grant.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

#include "server/security/root_rights.h"
#include "server/security/token.h"

namespace octavo::security {

bool IsGrantable(absl::string_view object) {
  constexpr size_t kMostIdBytes = 128;
  for (const absl::string_view kind : {"scans/", "jobs/", "volumes/", "buffers/"}) {
    absl::string_view id = object;
    if (absl::ConsumePrefix(&id, kind))
      return !id.empty() && id.size() <= kMostIdBytes &&
             std::all_of(id.begin(), id.end(), [](char c) {
               return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
             });
  }
  return false;
}

bool CouldBeGrantee(absl::string_view name) {
  if (name.size() > kMostGranteeBytes) return false;
  if (name.find(':') == absl::string_view::npos) return IsTokenName(name);
  return CouldBePrincipal(name) && std::none_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

}  // namespace octavo::security
