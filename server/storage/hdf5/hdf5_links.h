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

/// A group or dataset and its file, which may differ from the file that was opened. `path` contains
/// no links.
struct Hdf5Place {
  hid_t file = -1;  // open during the lifetime of the Hdf5Links
  std::string file_path, path;
};

/// An untrusted file and the files that its links lead to. This class follows links itself, one by
/// one, never through the library: it opens another file only if its canonical path lies under one
/// of the roots. All calls with the library's lock held. Errors are those of dataset_errors.h and
/// name link and target.
class Hdf5Links {
 public:
  /// `path` has been opened as `file`. No roots: no other file is opened.
  Hdf5Links(const std::string& path, Hdf5Id file, const std::vector<std::string>& roots);
  Hdf5Links(const Hdf5Links&) = delete;

  /// Resolves `name` (absolute in the file that was opened). Nothing if a part of it does not
  /// exist; InvalidArgument for a link that is dangling, leads outside of the roots or to no HDF5
  /// file, or is circular.
  absl::StatusOr<std::optional<Hdf5Place>> Find(const std::string& name);
  /// The same for a dataset that the dataset at `from` refers to: dataset `name` of file `file`
  /// ("." = its own). `what`: the referring object, for errors.
  absl::StatusOr<Hdf5Place> FindSource(const Hdf5Place& from, const std::string& file,
                                       const std::string& name);

  const std::string& path() const { return path_; }
  /// Whether the place is in the file that was opened, not in one that a link leads to.
  bool IsOfOpenedFile(const Hdf5Place& place) const { return place.file_path == main_; }
  /// The name of a place in errors: `asked`, and its target if that is in another file.
  std::string Label(const std::string& asked, const Hdf5Place& place) const;
  /// The error of the first dangling link that was ignored, or OK.
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
  std::string main_;                              // canonical path of the opened file
  absl::Status overlooked_;
};

/// Access properties that let the library reach no other file.
Hdf5Id ConfinedAccess(hid_t of_class);
/// The library's reason for its last failure. Forgets it.
std::string Hdf5Reason();

}  // namespace octavo::storage
