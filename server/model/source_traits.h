#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

namespace octavo::model {

/// What opening a source tells of it, before any record is read.
struct SourceTraits {
  int64_t samples_per_record = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
  double record_rate_hz = 0;  // 0 = as fast as possible
  int64_t adc_bits = 0;       // bits of a sample that carry numbers; 0 = those of the raw type
  int64_t total_records = 0;  // 0 = unbounded
  int64_t file_records = 0;   // of a file, read once; 0 = no file
  std::vector<int64_t> file_shape;  // of a file that has one: its records along each axis
  bool first_differs = false;  // a file's first record is unlike the next ones: perhaps a header
  std::vector<std::string>
      warnings;  // what in a file speaks against the way it is to be read, one sentence each
  std::vector<double> wavelength_nm;  // [S] if the source knows its spectrometer
};

}  // namespace octavo::model
