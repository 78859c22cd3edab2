#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/io/hdf5_library.h"

namespace octavo::storage {

/// A group or dataset and the file that it lies in, which may be another one than was opened. No
/// link is left on `path`.
struct Hdf5Place {
  hid_t file = -1;  // open as long as the Hdf5Links are
  std::string file_path, path;
};

/// A file that somebody else wrote, and the files that its links lead to. Links are followed here,
/// one by one, and never by the library: another file is opened only when its canonical path lies
/// under one of the roots. All calls with the library's lock held. Errors are those of
/// projection_input.h and name link and target.
class Hdf5Links {
 public:
  /// `path` has been opened as `file`. No roots: no other file is opened.
  Hdf5Links(const std::string& path, Hdf5Id file, const std::vector<std::string>& roots);
  Hdf5Links(const Hdf5Links&) = delete;

  /// Where `name` (absolute in the file that was opened) leads. Nothing if a part of it is not
  /// there; InvalidArgument for a link that leads nowhere, outside of the roots, to no HDF5 file,
  /// or on and on.
  absl::StatusOr<std::optional<Hdf5Place>> Find(const std::string& name);
  /// The same for what a dataset at `from` names: dataset `name` of file `file` ("." = its own).
  /// `what`: what names it, for errors.
  absl::StatusOr<Hdf5Place> FindSource(const Hdf5Place& from, const std::string& file,
                                       const std::string& name);

  const std::string& path() const { return path_; }
  /// How a place is called in errors: `asked`, and where that led if it is in another file.
  std::string Label(const std::string& asked, const Hdf5Place& place) const;
  /// The first link that led nowhere where that was overlooked, or OK.
  const absl::Status& overlooked() const { return overlooked_; }
  void Overlook(const absl::Status& status);

 private:
  absl::StatusOr<std::optional<Hdf5Place>> Follow(Hdf5Place at, const std::string& name,
                                                  const std::string& asked);
  absl::Status OpenFile(const std::string& named, const std::string& link,
                        const std::string& target, Hdf5Place* at);

  const std::string path_;
  std::vector<std::string> roots_, given_roots_;  // canonical, as configured
  std::map<std::string, Hdf5Id> files_;           // by canonical path
  std::string main_;                              // canonical path of the file that was opened
  absl::Status overlooked_;
};

/// Properties of an access through which no other file is reached.
Hdf5Id ConfinedAccess(hid_t of_class);
/// The library's reason for its last failure. Forgets it.
std::string Hdf5Reason();

}  // namespace octavo::storage
