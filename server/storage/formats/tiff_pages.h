#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tbb/enumerable_thread_specific.h"

#include "server/storage/formats/planes.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/deflate.h"

namespace octavo::storage {

/// The pages of a TIFF: their planes of the volume, their strips, their directories. The writer
/// decides where they lie in the file.
///
/// A page is a plane across the axis that the options name. If that is the volume's first axis,
/// each slab has whole pages, in strips of about 256 KiB. Else every slab has some rows of all
/// pages: a strip of each. Strips are raw or deflated.
class TiffPages {
 public:
  /// `options` are resolved. `big`: BigTIFF, whose offsets have 64 bits.
  TiffPages(const VolumeMeta& meta, const WriterOptions& options, bool big);

  int64_t count() const { return meta_.shape[order_[0]]; }
  int64_t rows() const { return meta_.shape[order_[1]]; }
  int64_t columns() const { return meta_.shape[order_[2]]; }
  double spacing_um(int page_row_column) const {
    return meta_.spacing_um[order_[static_cast<size_t>(page_row_column)]];
  }
  bool spacing_assumed(int page_row_column) const {
    return meta_.spacing_assumed[order_[static_cast<size_t>(page_row_column)]];
  }
  /// Planes along the volume's first axis that a slab should have; all but the last slab must.
  int64_t SlabPlanes() const { return slab_planes_; }
  /// The axes of pages, their rows and their columns: ["y", "z", "x"].
  nlohmann::json Axes() const;

  /// Strips that lie one after the other in `bytes`.
  struct Block {
    struct Strip {
      int64_t page, bytes;
    };
    std::string bytes;
    std::vector<Strip> strips;
  };
  /// The strips of a slab, page by page where it has whole pages. Runs in the caller's oneTBB
  /// arena.
  absl::StatusOr<std::vector<Block>> Encode(int64_t planes, const char* slab);
  /// Records the place of the next strip of a page. Any thread, but one at a time for each page.
  void Wrote(int64_t page, int64_t offset, int64_t bytes);

  static int64_t HeadBytes(bool big) { return big ? 16 : 8; }
  /// The beginning of the file; the first directory is at `directory`, a multiple of 8.
  std::string Head(int64_t directory) const;
  /// The directory of a page, to lie at `offset`, a multiple of 8; another one follows it unless
  /// `last`.
  std::string Directory(int64_t page, const std::string& description, int64_t offset,
                        bool last) const;

 private:
  absl::Status EncodeStrip(const char* data, int64_t bytes, Block* out);

  const VolumeMeta meta_;
  const WriterOptions options_;
  const bool big_;
  PlaneOrder order_;
  int64_t slab_planes_ = 1, strip_rows_ = 1;
  int64_t next_page_ = 0;  // if slabs have whole pages: the first page of the next slab
  std::vector<std::vector<uint64_t>> offsets_, sizes_;  // [page][strip]
  tbb::enumerable_thread_specific<std::string> scratch_;
  tbb::enumerable_thread_specific<BlockDeflater> deflaters_;
};

}  // namespace octavo::storage
