#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

namespace octavo::model {

/// The properties of a source known after opening it, before any record is read.
struct SourceTraits {
  int64_t samples_per_record = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  double record_rate_hz = 0;        // 0 = as fast as possible
  int64_t adc_bits = 0;             // significant bits of a sample; 0 = those of the raw type
  int64_t total_records = 0;        // 0 = unlimited
  int64_t file_records = 0;         // of a file, read once; 0 = no file
  std::vector<int64_t> file_shape;  // a file's records along each axis, if it has a shape
  bool first_differs = false;       // the first record of a file differs: perhaps a header
  std::vector<std::string>
      warnings;  // evidence that a file is read with the wrong form, one sentence each
  std::vector<double> wavelength_nm;  // [S] if the source knows its spectrometer
};

}  // namespace octavo::model
