#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/model/frame.h"
#include "server/model/resolved_scan.h"

namespace octavo::processing {

/// A record as the source delivered it.
struct RawRecordView {
  DType dtype = DType::kU16;
  std::vector<int64_t> shape;     // of `axes`
  std::vector<std::string> axes;  // "record" (of record_average), "sample", "channel" (of channels)
  std::vector<uint8_t> bytes;     // C order; packed samples are unpacked
};
RawRecordView ViewRecord(const model::ResolvedScan& scan, const uint8_t* record);

/// Sets the saturation levels (not for raw F32 whose acquisition.adc_bits is not known) and the
/// saturated samples. `whole`: numbers count through all samples of ViewRecord; else they are the
/// samples 0 ... S-1 of the processed channel, saturated in any of the averaged records.
void FindSaturated(const model::ResolvedScan& scan, const uint8_t* record, bool whole,
                   model::RecordInfo* info);

/// Sets minimum and maximum of a payload of `dtype`; NaN is left out, complex numbers count by
/// their magnitude.
void FindRange(DType dtype, const uint8_t* data, int64_t bytes, model::RecordInfo* info);

}  // namespace octavo::processing
