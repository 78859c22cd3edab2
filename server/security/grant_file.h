#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/grant.h"
#include "server/security/secret_file.h"

namespace octavo::security {

/// The file of the grants of one server (<state.dir>/grants.json): a JSON object, one grant a line.
///
///   {"format":"octavo grants 1","server_id":"a1b2c3d4","grants":[
///   {"name":"grants/…","object":"scans/…","grantee":"bob","owner":"ada","project":"retina",
///    "created_unix_ns":…,"expires_unix_ns":…}
///   ]}
///
/// Not thread-safe.
class GrantFile {
 public:
  GrantFile(std::string path, std::string server_id)
      : path_(std::move(path)), server_id_(std::move(server_id)) {}

  /// The grants in their order; none if there is no file. A file that is damaged, of another server
  /// or one that others may read or change gives no rights: it is renamed to
  /// "<path>.damaged-<time>", and `aside` says what became of it and why. A file that cannot be
  /// read now stays as it is: the errors of ReadSecretFile. FailedPrecondition if it cannot be
  /// renamed.
  absl::StatusOr<std::vector<Grant>> Read(int64_t now_unix_ns, std::string* aside) const;

  /// What Write would write.
  std::string TextOf(const std::vector<Grant>& grants) const;
  /// The disk has it when this returns OK. ResourceExhausted (DISK_FULL), Internal (IO_ERROR).
  absl::Status Write(absl::string_view text) const;
  static constexpr size_t kMostBytes = kMostSecretFileBytes;

 private:
  /// FailedPrecondition says what is wrong.
  absl::StatusOr<std::vector<Grant>> Parse(const std::string& text) const;

  const std::string path_, server_id_;
};

}  // namespace octavo::security
