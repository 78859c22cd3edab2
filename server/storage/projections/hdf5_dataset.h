#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/projections/hdf5_links.h"

namespace octavo::storage {

/// A dataset whose data can be decoded here: in one piece or virtual, put together from datasets of
/// this and other files, which are opened with it and read by it, for the library itself would look
/// for them anywhere and take what it does not find for fill values. All calls with the library's
/// lock held; the Hdf5Links must live. Errors are those of projection_input.h.
class Hdf5Dataset {
 public:
  /// `label`: what it is called in errors. `cache_bytes`: of chunks, of each dataset; 0 = the
  /// library's.
  static absl::StatusOr<std::unique_ptr<Hdf5Dataset>> Open(Hdf5Links& links, const Hdf5Place& place,
                                                           const std::string& label,
                                                           int64_t cache_bytes);

  hid_t id() const { return data_.get(); }
  /// All of it is there: InvalidArgument if it was never written, or in part only.
  absl::Status CheckWritten() const;
  /// Extent of a chunk along dimension `d`, where the data lie in chunks; 1 elsewhere.
  int64_t Chunk(int d) const;
  /// Reads what is selected of `space` (a selection of its extent) to what is selected of `memory`;
  /// false with the library's reason.
  bool Read(hid_t type, hid_t memory, hid_t space, void* out) const;

 private:
  /// What a virtual dataset takes from another one.
  struct Part {
    Hdf5Id here, there;  // as many elements of either, in the same order
    hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK];
    std::shared_ptr<const Hdf5Dataset> source;
  };
  class Opener;

  std::string path_, label_;
  Hdf5Id data_;
  bool virtual_ = false;
  std::vector<Part> parts_;
};

}  // namespace octavo::storage
