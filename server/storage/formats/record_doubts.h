#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

// A raw file does not say what it holds. A wrong type or length of records gives a volume without
// an error; the values at the beginning of the file mostly show it, because neighbouring samples of
// a spectrum are alike and so are successive records.
namespace octavo::storage {

/// How raw records are to be read.
struct RecordForm {
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  int64_t samples = 0;        // of a record, channels included
  int64_t channels = 1;       // interleaved
  int64_t adc_bits = 0;       // as the client says; 0 = it does not say
  const char* of = "file's";  // what sentences call them
};

/// What in `bytes`, the beginning of a file or of what is pushed, speaks against `form`: sentences
/// that name the field and what it looks like instead. Empty where nothing does, also where the
/// data are too few or too noisy to tell.
std::vector<std::string> FindRecordDoubts(absl::string_view bytes, const RecordForm& form);

}  // namespace octavo::storage
