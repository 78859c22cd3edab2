#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/io/byte_source.h"

namespace octavo::storage {

/// A regular file in an open folder, by its name there. A folder may have more files than a process
/// may have open: each is opened when it is read, and no link in the folder is followed.
class FolderFile {
 public:
  FolderFile(std::shared_ptr<const UniqueFd> folder, std::string folder_name, std::string name,
             int64_t bytes)
      : folder_(std::move(folder)),
        folder_name_(std::move(folder_name)),
        name_(std::move(name)),
        bytes_(bytes) {}

  const std::string& name() const { return name_; }
  /// Its size when the folder was listed.
  int64_t bytes() const { return bytes_; }
  /// Opens it. DataLoss if its size is another than when the folder was listed.
  absl::StatusOr<std::shared_ptr<ByteSource>> Open() const;

 private:
  const std::shared_ptr<const UniqueFd> folder_;
  const std::string folder_name_, name_;
  const int64_t bytes_;
};

/// The regular files of an open folder, hidden ones left out, in natural order: numbers in names
/// count as numbers, "a9" before "a10". InvalidArgument (UNSUPPORTED_FILE) for more than `most`.
absl::StatusOr<std::vector<std::shared_ptr<FolderFile>>> FolderFiles(const UniqueFd& folder,
                                                                     const std::string& name,
                                                                     size_t most);

/// What seems to be wrong with a list of names in natural order that are numbered: a sentence, or
/// "". It names the first that is odd: a name that differs from most in more than numbers; the
/// place where more than one number changes, if one does mostly; numbers of another width, of those
/// with zeros in front. Of names that differ in one number alone, the first gap: where the smallest
/// step of the numbers is not always theirs, or is more than 1, files may be missing.
std::string DoubtNumbers(const std::vector<std::string>& names);

/// Whether `a` comes before `b` in natural order. Names that differ in leading zeros alone are
/// ordered as text.
bool NaturallyBefore(const std::string& a, const std::string& b);

}  // namespace octavo::storage
