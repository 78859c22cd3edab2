#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/io/byte_source.h"
#include "server/storage/io/element_type.h"

namespace octavo::storage {

/// A list of values of a directory, where it lies in the file.
struct TiffArray {
  uint16_t type = 0;
  uint64_t count = 0;
  uint64_t offset = 0;
};

/// A page: what its directory says, with TIFF's defaults for what it does not say. Strips are
/// blocks of the page's whole width.
struct TiffPage {
  int64_t index = 0;  // in the chain of directories, from 0
  uint32_t subfile = 0;
  int64_t width = 0, height = 0;
  int bits = 1, sample_format = 1, samples = 1;
  int compression = 1, predictor = 1, fill_order = 1, photometric = 1, orientation = 1;
  bool tiled = false;
  int64_t block_width = 0, block_height = 0;
  TiffArray offsets, sizes;  // of the blocks; sizes.count 0: not said
  TiffArray jpeg_tables, description, subdirectories;
  TiffArray x_resolution, y_resolution;
  int resolution_unit = 2;  // 1 none, 2 inch, 3 cm

  int64_t blocks_across() const { return (width + block_width - 1) / block_width; }
  int64_t blocks_down() const { return (height + block_height - 1) / block_height; }
  /// Rows of the block in row `down` of blocks: of a tile all, of a strip those within the page.
  int64_t BlockRows(int64_t down) const;
  /// Bytes of a row of a block once it is decompressed.
  int64_t RowBytes() const { return (block_width * bits + 7) / 8; }
  /// Whether it is a smaller copy, or a mask, of another page.
  bool IsAside() const { return (subfile & 5) != 0; }
};

/// The directories of a TIFF or BigTIFF of either byte order. The file is not trusted: every offset
/// and count is checked against its size. Keeps the directories in memory, not the file. Sources:
/// TIFF 6.0; Adobe's TIFF technical notes; https://www.awaresystems.be/imaging/tiff/bigtiff.html
class TiffFile {
 public:
  /// Reads the chain of directories. DAMAGED_FILE names tag and page: offsets out of the file,
  /// directories that overlap or return to an earlier one, missing tags.
  static absl::StatusOr<std::shared_ptr<const TiffFile>> Open(ByteSource& bytes);

  const std::string& name() const { return name_; }
  bool big() const { return big_; }
  bool big_endian() const { return big_endian_; }
  const std::vector<TiffPage>& pages() const { return pages_; }
  int64_t size() const { return size_; }

  // `bytes` is the file: the directories do not keep it open.

  /// The text of a tag, without zeros at its end, or its bytes; at most 64 MiB. "" if the tag is
  /// not there.
  absl::StatusOr<std::string> Text(ByteSource& bytes, const TiffArray& array) const;
  /// The first value of a tag as a number; nothing if the tag is not there, or a fraction by 0.
  absl::StatusOr<std::optional<double>> Number(ByteSource& bytes, const TiffArray& array) const;
  /// Value `i` of a list of integers.
  absl::StatusOr<uint64_t> Value(ByteSource& bytes, const TiffArray& array, uint64_t i) const;

 private:
  explicit TiffFile(const ByteSource& bytes) : name_(bytes.name()), size_(bytes.size()) {}
  absl::Status ReadHead(ByteSource& bytes, uint64_t* first);
  absl::StatusOr<uint64_t> ReadDirectory(ByteSource& bytes, uint64_t offset, int64_t index,
                                         uint64_t* end);
  absl::Status SetTag(ByteSource& bytes, uint16_t tag, const TiffArray& array,
                      TiffPage* page) const;
  absl::Status Complete(TiffPage* page) const;
  uint64_t Parse(const char* at, size_t bytes) const;

  const std::string name_;
  const int64_t size_;
  bool big_ = false, big_endian_ = false;
  std::vector<TiffPage> pages_;
};

/// "page 3" as people count, for messages: from 1.
std::string PageName(const TiffPage& page);

}  // namespace octavo::storage
