#pragma once

#include <string>

#include "absl/status/statusor.h"

// Credentials of systemd: files that it puts into a folder for the service alone, because its unit
// says LoadCredential= or SetCredential=. The folder is $CREDENTIALS_DIRECTORY.
namespace octavo::security {

/// The path of a file of the configuration: "credential:NAME" stands for the credential of this
/// name; other texts stay as they are. FailedPrecondition if systemd gave this process none;
/// InvalidArgument for a name that is none.
absl::StatusOr<std::string> ExpandCredential(const std::string& path);

/// Whether a file lies in the folder of credentials.
bool IsCredential(const std::string& path);

}  // namespace octavo::security
