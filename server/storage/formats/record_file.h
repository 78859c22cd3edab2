#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

namespace octavo::storage {

/// What a request says of the records of a file; an .npy file says it itself.
struct AskedRecords {
  int64_t samples = 0;   // 0 = as the file says; a raw file says nothing
  int64_t channels = 1;  // interleaved
  DType raw_type = DType::kU16;
  bool raw_type_given = false;
  math::Packing packing = math::Packing::kNone;  // 12 bits packed: raw_type is kU16
  int64_t adc_bits = 0;                          // 0 = not said
  uint64_t header_bytes = 0;                     // of a raw file, before the first record
  bool allow_partial =
      false;  // a last record that is not whole is left out; else such a file is refused
};

/// A file of raw records: raw numbers, or .npy.
struct RecordFile {
  UniqueFd fd;
  std::string name;  // as the client knows it, for messages
  bool is_npy = false;
  int64_t data_offset = 0, records = 0, samples = 0, channels = 1, record_bytes = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  int64_t adc_bits = 0;        // as the request says; 0 = it does not
  std::vector<int64_t> shape;  // of an .npy file, without the axes of a record
  int64_t partial_bytes = 0;   // of a last record that is not whole and left out
  int64_t missing_bytes = 0;   // that an .npy file says it has more: it was cut off
};

/// Looks at a file that is open. InvalidArgument names the field of the scan at fault
/// ("replay.path", "acquisition.samples_per_record", ...), the value and what is allowed.
absl::StatusOr<RecordFile> OpenRecords(UniqueFd fd, const std::string& name, bool is_npy,
                                       const AskedRecords& asked);

/// What is left out, and what the beginning of a raw file looks like instead of what it is said to
/// be (record_doubts.h); an .npy file says what it holds.
absl::StatusOr<std::vector<std::string>> DoubtsOf(const RecordFile& file);

/// Whether the first record of a raw file is unlike the next ones (text, zeros): as a header would
/// be that is as long as a record.
absl::StatusOr<bool> FirstRecordDiffers(const RecordFile& file);

}  // namespace octavo::storage
