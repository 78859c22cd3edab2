#include "server/volume_import/imported_volume.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"

#include "server/volume/volume_metadata.h"

namespace octavo::volume_import {
namespace {

constexpr size_t kMostTitle = 256, kMostLabels = 64, kMostKey = 63, kMostValue = 256;

nlohmann::json Provenance(const storage::InputVolume& input, const std::string& job,
                          const std::string& file, const std::string& parameters) {
  nlohmann::json out = {
      {"job", job},
      {"file", file},
      {"format", storage::Name(input.info().format)},
      {"parameters", nlohmann::json::parse(parameters, nullptr, /*allow_exceptions=*/false)}};
  if (input.info().octavo.has_value()) {
    const storage::VolumeMeta& commit = *input.info().octavo;
    out["commit"] = {{"volume", commit.volume_name}, {"parent", commit.scan_name},
                     {"index", commit.index},        {"digest", commit.digest},
                     {"software", commit.software},  {"device_model", commit.device_model}};
  }
  return out;
}

/// CleanText for all texts that a file brings, in the bounds of those of clients.
void CleanTexts(storage::VolumeMeta* meta) {
  meta->title = CleanText(meta->title, kMostTitle);
  std::map<std::string, std::string> labels;
  for (const auto& [key, value] : meta->labels) {
    if (labels.size() < kMostLabels)
      labels[CleanText(key, kMostKey)] = CleanText(value, kMostValue);
  }
  meta->labels = std::move(labels);
  for (std::string& warning : meta->warnings) warning = CleanText(warning, kMostWarning);
  for (auto& [key, value] : meta->acquisition.items()) {
    if (value.is_string()) value = CleanText(value.get<std::string>(), kMostValue);
  }
}

void SetMeaning(const std::string& value_kind, model::VolumeStatus* volume) {
  volume->value = model::ValueKind::kDefault;
  volume->quantity = model::Quantity::kNone;
  if (const auto value = volume::ValueNamed(value_kind)) {
    volume->value = *value;
  } else if (const auto quantity = model::QuantityNamed(value_kind)) {
    volume->quantity = *quantity;  // none, of a file that does not say it
  }
  volume->is_raw = volume->quantity == model::Quantity::kRawSpectra ||
                   volume->quantity == model::Quantity::kRawSpectraU12p ||
                   volume->quantity == model::Quantity::kRawSpectraU12Packed;
}

}  // namespace

std::string CleanText(const std::string& text, size_t most) {
  using nlohmann::json;
  std::string clean = json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace))
                          .get<std::string>();
  if (clean.size() <= most) return clean;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(clean[end]) & 0xC0) == 0x80) --end;
  clean.resize(end);
  return clean;
}

model::VolumeStatus DescribeImported(const storage::InputVolume& input, const std::string& job,
                                     const std::string& file, const std::string& parameters) {
  storage::VolumeMeta meta = input.meta();
  if (!input.info().octavo.has_value()) CleanTexts(&meta);
  model::VolumeStatus volume;
  volume::DescribeBy(meta, &volume);
  SetMeaning(meta.value_kind, &volume);
  volume.missing_frames = meta.missing_frames;
  volume.expected_frames = meta.expected_frames;
  volume.complete = meta.missing_ascans == 0 && meta.missing_frames == 0;
  volume.display_lo = meta.display_lo;
  volume.display_hi = meta.display_hi;
  if (!meta.processing.is_object() && !meta.processing.is_null())
    meta.processing = {{"committed", meta.processing}};
  meta.processing["import"] = Provenance(input, job, file, parameters);
  volume.recovered_meta = std::make_shared<const storage::VolumeMeta>(std::move(meta));
  return volume;
}

}  // namespace octavo::volume_import
