#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/hdf5/hdf5_dataset.h"
#include "server/storage/hdf5/hdf5_links.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {

/// The type of a number; nothing if it is no real number. The library's lock is held, as in the
/// next two.
std::optional<StoredType> StoredTypeOf(hid_t type);
/// The type in memory of what the library reads as `dtype` (u8, u16, i16, f32).
hid_t MemoryTypeOf(DType dtype);
/// A text attribute of an open group or dataset, or "" if there is none.
std::string Hdf5TextAttribute(hid_t object, const std::string& attribute);

/// Reads an untrusted HDF5 file: it follows links and virtual datasets to other files only under
/// the roots. Every call takes the library's lock. Paths are absolute within the file. Errors are
/// those of projection_input.h.
class Hdf5Reader : public std::enable_shared_from_this<Hdf5Reader> {
 public:
  /// `opened` had the name `path`. `roots`: folders that may contain other files; none = no other
  /// file is read.
  static absl::StatusOr<std::shared_ptr<Hdf5Reader>> Open(const UniqueFd& opened,
                                                          const std::string& path,
                                                          const std::vector<std::string>& roots);
  ~Hdf5Reader();

  const std::string& path() const { return path_; }
  /// Whether there is a group or dataset of this path.
  absl::StatusOr<bool> Exists(const std::string& name);
  /// Names of the groups in a group, in alphabetical order; links that cannot be followed are left
  /// out.
  std::vector<std::string> Groups(const std::string& group);
  /// The error of the first link that Groups left out; OK if there was none.
  absl::Status LeftOut();
  /// A text attribute of a group or dataset, or "" if there is none.
  std::string TextAttribute(const std::string& name, const std::string& attribute);
  /// A text dataset; "" if it is none.
  std::string Text(const std::string& name);

  /// Frames: a dataset of rank 3, or 2 where `flat` (one frame), of real numbers.
  absl::StatusOr<std::shared_ptr<FrameArray>> Frames(const std::string& name, bool flat);
  /// A dataset of rank 0 or 1.
  absl::StatusOr<std::vector<double>> Numbers(const std::string& name);

 private:
  friend class Hdf5Frames;
  explicit Hdf5Reader(const std::string& path) : path_(path) {}
  absl::StatusOr<Hdf5Place> FindDatasetLocked(const std::string& name);
  absl::StatusOr<std::unique_ptr<Hdf5Dataset>> OpenDatasetLocked(const std::string& name,
                                                                 const Hdf5Place& place,
                                                                 int64_t cache_bytes, bool decodes);
  std::shared_ptr<FrameArray> PlainLocked(const Hdf5Place& place, const Hdf5Dataset& data,
                                          const StoredType& type, int64_t elements);
  Hdf5Id OpenLocked(const std::string& name);
  UniqueFd PlainFileLocked(const Hdf5Place& place);

  const std::string path_;
  UniqueFd file_;  // the opened file, for reads past the library
  std::unique_ptr<Hdf5Links> links_;
};

}  // namespace octavo::storage
