#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/tiff/tiff_file.h"

namespace octavo::storage {

/// The type of a page's elements once they are unpacked: 1 and 4 bits become u8, 12 bits u16.
/// UNSUPPORTED_FILE names tag and value for pages that are not read: several samples (colour),
/// other sizes; UNKNOWN_COMPRESSION.
absl::StatusOr<ElementType> TiffElementType(const TiffFile& file, const TiffPage& page);

/// Checks the page's list of blocks: as many as its extents ask for, with sizes, none that decodes
/// to more than `most_block_bytes`.
absl::Status CheckTiffBlocks(const TiffFile& file, const TiffPage& page, int64_t most_block_bytes);

/// Memory and decoders of one thread; kept between blocks.
class TiffScratch {
 public:
  TiffScratch();
  ~TiffScratch();
  TiffScratch(const TiffScratch&) = delete;

 private:
  friend class TiffBlockDecoder;
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
  std::vector<char> packed_, raw_, jpeg_;
};

/// A part of a page, in elements.
struct TiffBox {
  int64_t row = 0, column = 0, rows = 0, columns = 0;
};

/// Copies the part of block `block` (counted along rows of blocks) that lies in `box` to its place
/// in `out`, which has the box's first element and `pitch` elements from a row to the next.
/// Elements of the page's TiffElementType, in host byte order. The page has passed the checks
/// above. `bytes` is the file. DAMAGED_FILE names page and block.
absl::Status ReadTiffBlock(ByteSource& bytes, const TiffFile& file, const TiffPage& page,
                           int64_t block, const TiffBox& box, int64_t pitch, TiffScratch* scratch,
                           char* out);

/// The same of a page whose elements lie plain at `offset`.
absl::Status ReadPlainTiff(ByteSource& bytes, const TiffFile& file, const TiffPage& page,
                           int64_t offset, const TiffBox& box, int64_t pitch, char* out);

}  // namespace octavo::storage
