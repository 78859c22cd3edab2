#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

// A raw file does not describe its contents. A wrong type or length of records gives a wrong volume
// without an error. The values at the beginning of the file usually reveal it, because neighbouring
// samples of a spectrum are alike, and so are successive records.
namespace octavo::storage {

/// The layout of raw records.
struct RecordForm {
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  int64_t samples = 0;        // of a record, channels included
  int64_t channels = 1;       // interleaved
  int64_t adc_bits = 0;       // as the client says; 0 = not given
  bool described = false;     // the file says itself which type and length they have
  const char* of = "file's";  // the word for them in the sentences
};

/// Evidence against `form` in `bytes`, the beginning of a file or of pushed data: sentences that
/// name the field and the more likely value. Empty if there is none, also if the data are too few
/// or too noisy to tell.
std::vector<std::string> FindRecordDoubts(absl::string_view bytes, const RecordForm& form);

}  // namespace octavo::storage
