#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

namespace octavo::storage {

/// The request's description of the records of a file; an .npy file has its own.
struct AskedRecords {
  int64_t samples = 0;   // 0 = the file's own number; a raw file has no description
  int64_t channels = 1;  // interleaved
  DType raw_type = DType::kU16;
  bool raw_type_given = false;
  math::Packing packing = math::Packing::kNone;  // 12 bits packed: raw_type is kU16
  int64_t adc_bits = 0;                          // 0 = not given
  uint64_t header_bytes = 0;                     // of a raw file: bytes before the first record
  bool allow_partial = false;  // drop an incomplete last record; else refuse the file
};

/// A file of raw records: raw numbers, or .npy.
struct RecordFile {
  UniqueFd fd;
  std::string name;  // the client's name for it, for messages
  bool is_npy = false;
  int64_t data_offset = 0, records = 0, samples = 0, channels = 1, record_bytes = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  int64_t adc_bits = 0;        // from the request; 0 = not given
  std::vector<int64_t> shape;  // of an .npy file, without the axes of a record
  int64_t partial_bytes = 0;   // bytes of an incomplete last record, left out
  // bytes that an .npy file lacks of its declared size, because it was cut off
  int64_t missing_bytes = 0;
};

/// Examines an open file. InvalidArgument names the field of the scan at fault ("replay.path",
/// "acquisition.samples_per_record", ...), the value and what is allowed.
absl::StatusOr<RecordFile> OpenRecords(UniqueFd fd, const std::string& name, bool is_npy,
                                       const AskedRecords& asked);

/// Sentences about bytes left out, and about a file whose beginning contradicts its description
/// (record_doubts.h); an .npy file says itself which type and length its records have.
absl::StatusOr<std::vector<std::string>> DoubtsOf(const RecordFile& file);

/// The order in which a raster takes records.
struct RasterOrder {
  int64_t ascans = 0, flyback = 0;         // of a B-scan
  int64_t bscans = 0, volume_flyback = 0;  // of a volume
  int64_t volumes = 0;                     // 0 = endless
};
/// A sentence if the axes of a file (RecordFile::shape) show another order; else empty.
std::string ShapeDoubt(const std::vector<int64_t>& shape, const RasterOrder& raster);

/// Whether the first record of a raw file differs from the next ones (text, zeros), as a header as
/// long as a record would.
absl::StatusOr<bool> FirstRecordDiffers(const RecordFile& file);

}  // namespace octavo::storage
