#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/storage/hdf5/checked_read.h"
#include "server/storage/hdf5/hdf5_links.h"

namespace octavo::storage {

/// A dataset whose data this program can decode: in one piece, or virtual, composed of datasets of
/// this and other files. This class opens and reads those itself, because the library would look
/// for them anywhere and replace missing ones by fill values. All calls with the library's lock
/// held; the Hdf5Links must live. Errors are those of dataset_errors.h.
class Hdf5Dataset {
 public:
  /// `label`: its name in errors. `cache_bytes`: size of the chunk cache of each dataset; 0 = the
  /// library's default. `own`: filters that the library need not know, because the caller reads
  /// and decodes the chunks of this dataset itself; those of parts of a virtual one it cannot.
  static absl::StatusOr<std::unique_ptr<Hdf5Dataset>> Open(Hdf5Links& links, const Hdf5Place& place,
                                                           const std::string& label,
                                                           int64_t cache_bytes,
                                                           absl::Span<const H5Z_filter_t> own = {});

  hid_t id() const { return data_.get(); }
  /// Checks that all of it was written: InvalidArgument if none or only a part was.
  absl::Status CheckWritten() const;
  /// Extent of a chunk along dimension `d`, where the data lie in chunks; 1 elsewhere.
  int64_t Chunk(int d) const;
  /// Reads the selection of `space` into the selection of `memory`; false with the library's
  /// reason.
  bool Read(hid_t type, hid_t memory, hid_t space, void* out) const;

 private:
  /// A part of a virtual dataset, taken from another dataset.
  struct Part {
    Hdf5Id here, there;  // the same number of elements in both, in the same order
    hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK];
    std::shared_ptr<const Hdf5Dataset> source;
  };
  class Opener;

  std::string path_, label_;
  Hdf5Id data_;
  mutable std::optional<Hdf5ChunkCheck> check_;  // used with the library's lock held
  bool virtual_ = false;
  std::vector<Part> parts_;
};

}  // namespace octavo::storage
