#include "server/scan/resolve_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/spectral/spectral_design.h"
#include "gpu/spectral/spectral_span.h"
#include "server/base/errors.h"
#include "server/pattern/plan.h"
#include "server/processing/processing_doubts.h"
#include "server/processing/resolve_processing.h"
#include "server/source/sources.h"
#include "server/storage/formats/record_file.h"

namespace octavo::scan {
namespace {

constexpr int64_t kMostVolumeRecords = int64_t{1} << 31;
constexpr int64_t kMostBlockRecords = 1 << 24;
constexpr int64_t kMostHoldSlots = 65536, kMostRingBlocks = 1024;
constexpr double kMostTtlSeconds = 31'536'000;  // 365 days

// How many bits of a sample carry numbers: as the source declares, unless the client knows better.
absl::Status ResolveAdcBits(model::ResolvedScan& scan) {
  model::Acquisition& a = scan.spec.acquisition;
  const int64_t container = ContainerBits(a.raw_type, a.packing);
  OCTAVO_RETURN_IF_ERROR(
      InRange("acquisition.adc_bits", a.adc_bits, 0, container == 0 ? 32 : container));
  const auto* simulated = std::get_if<model::SimulatedSource>(&scan.spec.source);
  if (simulated != nullptr && a.adc_bits != 0 && a.adc_bits != simulated->adc_bits) {
    return FieldNotAllowed(
        "acquisition.adc_bits",
        absl::StrCat(a.adc_bits, " and simulated.adc_bits is ", simulated->adc_bits),
        "0 or the same number");
  }
  if (a.adc_bits == 0) a.adc_bits = scan.source.adc_bits > 0 ? scan.source.adc_bits : container;
  return absl::OkStatus();
}

// Records wait in the ring while the host does something else. Of fast sources eight blocks are a
// few milliseconds, and a busy host keeps a thread waiting for longer.
int64_t ChosenRingBlocks(double rate_hz, int64_t records, int64_t bytes) {
  constexpr int64_t kLeast = 8, kMostBytes = int64_t{256} << 20;
  constexpr double kSeconds = 0.05;
  const auto wanted = static_cast<int64_t>(
      std::ceil(std::min(1e9, rate_hz) * kSeconds / static_cast<double>(records)));
  return std::clamp(wanted, kLeast, std::clamp(kMostBytes / bytes, kLeast, kMostRingBlocks));
}

absl::Status ResolveAcquisition(model::ResolvedScan& scan) {
  model::Acquisition& a = scan.spec.acquisition;
  const pattern::Pattern& p = scan.spec.pattern;
  a.samples_per_record = scan.source.samples_per_record;
  a.raw_type = scan.source.raw_type;
  a.packing = scan.source.packing;
  a.raw_type_given = true;
  OCTAVO_RETURN_IF_ERROR(
      InRange("acquisition.samples_per_record", a.samples_per_record, 16, 65536));
  OCTAVO_RETURN_IF_ERROR(
      InRange("acquisition.channels", a.channels, 1, 65536 / a.samples_per_record));
  OCTAVO_RETURN_IF_ERROR(ResolveAdcBits(scan));
  int64_t line = p.ascans_per_bscan + p.flyback_records;
  scan.volume_records = line * p.bscans_per_volume + p.volume_flyback_records;
  if (p.plan != nullptr) {  // flyback may differ from segment to segment
    scan.volume_records = p.plan->volume_records;
    line = std::max<int64_t>(1, scan.volume_records / std::ssize(p.plan->kind[0].segments));
  }
  if (scan.volume_records > kMostVolumeRecords) {
    return InvalidField(pattern::FieldsOf(p.kind) + "bscans_per_volume",
                        absl::StrCat("makes ", scan.volume_records, " records a volume; allowed ",
                                     kMostVolumeRecords));
  }
  const int64_t record_bytes = a.SourceRecordBytes() * a.record_average;
  if (a.records_per_block == 0) {
    // About 4 MiB, whole lines, and no more than a volume, so that small volumes come out at once.
    const int64_t lines = std::max<int64_t>(1, (4 << 20) / (record_bytes * line));
    a.records_per_block =
        std::min({lines * line, scan.volume_records, processing::kMostBlockBytes / record_bytes});
  }
  OCTAVO_RETURN_IF_ERROR(
      InRange("acquisition.records_per_block", a.records_per_block, 1,
              std::min(processing::kMostBlockBytes / record_bytes, kMostBlockRecords)));
  if (a.ring_blocks == 0) {
    a.ring_blocks =
        ChosenRingBlocks(scan.source.record_rate_hz, a.records_per_block * a.record_average,
                         a.records_per_block * record_bytes);
  }
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.ring_blocks", a.ring_blocks, 3, kMostRingBlocks));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.record_rate_hz", a.record_rate_hz, 0.0, 1e9));
  a.record_rate_hz = scan.source.record_rate_hz;
  return absl::OkStatus();
}

// Warns of records in the file that the scan does not take, or takes several times: mostly a sign
// of a wrong length or number of records.
void CompareWithFile(model::ResolvedScan* scan) {
  const int64_t holds = scan->source.file_records, volumes = scan->spec.pattern.volumes;
  const auto* replay = std::get_if<model::ReplaySource>(&scan->spec.source);
  if (holds == 0 || replay == nullptr) return;
  const int64_t volume =
      scan->volume_records * scan->spec.acquisition.record_average;  // in the file's records
  const auto warn = [&](auto... words) {
    scan->warnings.push_back(absl::StrCat("The file holds ", holds, " records", words...));
  };
  const bool endless = replay->loops == 0, once = replay->loops == 1;
  if (volumes > 0 && holds > volumes * volume) {
    const int64_t left_out = holds - volumes * volume;
    const int64_t record_bytes = scan->spec.acquisition.SourceRecordBytes();
    const bool header = scan->source.first_differs &&
                        left_out <= std::max<int64_t>(1, (int64_t{1} << 20) / record_bytes);
    warn("; the scan takes ", volumes * volume, " of them: ", left_out,
         left_out == 1 ? " is left out." : " are left out.",
         header ? absl::StrCat(" The first record is unlike the next ones: if it is a header, give "
                               "replay.header_bytes = ",
                               static_cast<int64_t>(replay->header_bytes) + record_bytes, ".")
                : "");
  } else if (volumes > 0 && endless && holds < volumes * volume) {
    warn("; the scan takes ", volumes * volume, ": the file is read again from its beginning.");
  } else if (volumes > 0 && !endless && scan->source.total_records < volumes * volume) {
    warn(once ? "" : absl::StrCat(", read ", replay->loops, " times"), "; the scan would take ",
         volumes * volume, ": it ends early, and its last volume may lack A-scans.");
  } else if (volumes == 0 && holds % volume != 0) {
    warn(", which are ", static_cast<double>(holds) / static_cast<double>(volume), " volumes of ",
         volume,
         endless ? ": from the second time on, volumes begin at other records."
                 : ": the last volume lacks A-scans.");
  }
}

// The axes of a file may show the order of its records in B-scans and volumes.
void CompareShapes(model::ResolvedScan* scan) {
  const pattern::Pattern& p = scan->spec.pattern;
  if (p.kind != pattern::PatternKind::kRaster || scan->spec.acquisition.record_average > 1) return;
  std::string doubt =
      storage::ShapeDoubt(scan->source.file_shape, {.ascans = p.ascans_per_bscan,
                                                    .flyback = p.flyback_records,
                                                    .bscans = p.bscans_per_volume,
                                                    .volume_flyback = p.volume_flyback_records,
                                                    .volumes = p.volumes});
  if (!doubt.empty()) scan->warnings.push_back(std::move(doubt));
}

// Lists the A-scan and B-scan spacings that neither the client nor the source gives.
void NoteAssumed(const pattern::Pattern& given, model::ResolvedScan* scan) {
  const bool extents = pattern::IsRaster(given) || given.kind == pattern::PatternKind::kLissajous;
  const bool radii =
      (pattern::IsRadial(given) && given.radius_begin_mm == 0 && given.radius_end_mm == 0) ||
      (given.kind == pattern::PatternKind::kSpiral && given.radius_end_mm == 0);
  scan->spacing_assumed[0] = radii || (extents && given.extent_y_mm == 0);
  scan->spacing_assumed[1] = radii || (extents && given.extent_x_mm == 0);
}

// No scanner reaches so far, and no microscope is so fine: mostly the client gave micrometres or
// metres as millimetres.
void DoubtExtents(model::ResolvedScan* scan) {
  constexpr double kMostMm = 100, kLeastPixelUm = 0.2;
  const pattern::Pattern& p = scan->spec.pattern;
  const bool extents = pattern::IsRaster(p) || p.kind == pattern::PatternKind::kLissajous;
  for (const auto& [axis, value] : {std::pair{"x", p.extent_x_mm}, std::pair{"y", p.extent_y_mm}}) {
    if (value <= kMostMm) continue;
    const std::string what =
        extents ? absl::StrCat(pattern::FieldsOf(p.kind), "extent_", axis, "_mm is ", value)
                : absl::StrCat("The pattern goes over ", value, " mm along ", axis);
    scan->warnings.push_back(absl::StrCat(
        what, ", ", value / 1000, " m. If micrometres are meant: in mm they are a thousandth."));
  }
  if (!extents) return;
  const std::tuple<const char*, double, bool, int64_t> axes[] = {
      {"x", p.extent_x_mm, scan->spacing_assumed[1], p.ascans_per_bscan},
      {"y", p.extent_y_mm, scan->spacing_assumed[0], p.bscans_per_volume}};
  for (const auto& [axis, value, assumed, places] : axes) {
    const double pixel_um =
        value * 1e3 / static_cast<double>(pattern::IsRaster(p) ? places : p.ascans_per_bscan);
    if (assumed || places < 2 || pixel_um >= kLeastPixelUm) continue;
    scan->warnings.push_back(
        absl::StrFormat("%sextent_%s_mm is %g, %.3g um from one place to the next. It is in mm: if "
                        "metres are meant, give %g.",
                        pattern::FieldsOf(p.kind), axis, value, pixel_um, value * 1e3));
  }
}

absl::Status ResolveRetention(model::ScanSpec& spec) {
  model::Retention& r = spec.retention;
  const bool counted = spec.pattern.volumes > 0;
  if (r.mode == model::RetentionMode::kDefault)
    r.mode = counted ? model::RetentionMode::kCapture : model::RetentionMode::kLive;
  if (r.disposition == model::Disposition::kDefault) r.disposition = model::Disposition::kAsk;
  if (r.on_tier_full == model::OnFull::kDefault)
    r.on_tier_full = r.mode == model::RetentionMode::kCapture ? model::OnFull::kStopAtVolume
                                                              : model::OnFull::kDropNew;
  if (model::Spills(r.on_tier_full))
    return InvalidField("retention.on_tier_full",
                        "is a tier itself; allowed STOP_AT_VOLUME, DROP_NEW");
  OCTAVO_RETURN_IF_ERROR(InRange("retention.keep_last", r.keep_last, 0, kMostHoldSlots));
  if (r.keep_last > 0 &&
      (r.mode != model::RetentionMode::kLive || r.disposition != model::Disposition::kAsk)) {
    return InvalidField("retention.keep_last",
                        "is for LIVE scans with the disposition ASK: CAPTURE keeps every volume, "
                        "AUTO_COMMIT and AUTO_DISCARD none");
  }
  if (r.ttl_seconds != 0 && !(r.ttl_seconds >= 1 && r.ttl_seconds <= kMostTtlSeconds)) {
    return FieldNotAllowed("retention.ttl", absl::StrCat(r.ttl_seconds, " s"),
                           "unset (never), or 1 s to 365 days");
  }
  if (r.ttl_warning_seconds == 0) r.ttl_warning_seconds = std::min(60.0, r.ttl_seconds / 2);
  OCTAVO_RETURN_IF_ERROR(
      InRange("retention.ttl_warning", r.ttl_warning_seconds, 0.0, r.ttl_seconds / 2));
  if (spec.session.empty() && r.orphan != model::Orphan::kDefault &&
      r.orphan != model::Orphan::kKeep) {
    return InvalidField("retention.orphan",
                        "says what follows when the client is gone; that is known of clients with "
                        "a session only (session_secret)");
  }
  if (r.orphan == model::Orphan::kDefault) r.orphan = model::Orphan::kKeep;
  if (r.on_full == model::OnFull::kDefault)
    r.on_full = r.mode == model::RetentionMode::kCapture ? model::OnFull::kStopAtVolume
                                                         : model::OnFull::kDropNew;
  if (r.hold_slots == 0) {
    // A capture holds all its volumes; a scan whose volumes are committed as they complete needs
    // only a few slots.
    const bool all = r.mode == model::RetentionMode::kCapture && counted &&
                     r.disposition == model::Disposition::kAsk && !model::Spills(r.on_full);
    if (all && spec.pattern.volumes > kMostHoldSlots) {
      return InvalidField("retention.hold_slots",
                          absl::StrCat("is not given and all ", spec.pattern.volumes,
                                       " volumes would be held; allowed 1 to ", kMostHoldSlots));
    }
    r.hold_slots = r.disposition == model::Disposition::kAutoDiscard ? 2
                   : all                                             ? spec.pattern.volumes
                                                                     : 4;
  }
  OCTAVO_RETURN_IF_ERROR(InRange("retention.hold_slots", r.hold_slots, 1, kMostHoldSlots));
  if (spec.overrun == model::Overrun::kDefault)
    spec.overrun = r.mode == model::RetentionMode::kCapture ? model::Overrun::kFailScan
                                                            : model::Overrun::kDropBlock;
  if (r.disposition == model::Disposition::kAutoCommit && r.auto_commit.destination.empty()) {
    return InvalidField("retention.auto_commit.destination",
                        "is empty; AUTO_COMMIT needs one, for example \"{title}_{index:05}\"");
  }
  return absl::OkStatus();
}

/// What the next daemon submits again must need nobody who is gone by then, and meet no file of the
/// scan before.
absl::Status ResolveOnRestart(model::ScanSpec& spec) {
  if (spec.on_restart == model::OnRestart::kDefault) spec.on_restart = model::OnRestart::kEnd;
  if (spec.on_restart == model::OnRestart::kEnd) return absl::OkStatus();
  const auto unless = [](bool fine, absl::string_view what, absl::string_view allowed) {
    return fine ? absl::OkStatus()
                : FieldNotAllowed("on_restart", absl::StrCat("RESUME ", what),
                                  absl::StrCat("END, or RESUME ", allowed));
  };
  const bool driven = std::holds_alternative<model::SimulatedSource>(spec.source) ||
                      std::holds_alternative<model::CameraSource>(spec.source);
  OCTAVO_RETURN_IF_ERROR(
      unless(driven, "with a source that a client or a file drives", "with simulated or camera"));
  OCTAVO_RETURN_IF_ERROR(unless(spec.pattern.volumes == 0,
                                absl::StrCat("with pattern.volumes ", spec.pattern.volumes),
                                "with pattern.volumes 0, a scan that goes on until it is stopped"));
  OCTAVO_RETURN_IF_ERROR(unless(spec.retention.disposition == model::Disposition::kAutoCommit,
                                "with a retention.disposition that does not commit by itself",
                                "with AUTO_COMMIT"));
  const std::string& destination = spec.retention.auto_commit.destination;
  OCTAVO_RETURN_IF_ERROR(
      unless(absl::StrContains(destination, "{scan}"),
             absl::StrCat("with retention.auto_commit.destination '", destination, "'"),
             "with a destination that contains {scan}, so that no file of the scan before is met"));
  OCTAVO_RETURN_IF_ERROR(unless(spec.queue.name.empty(),
                                absl::StrCat("with queue.name '", spec.queue.name, "'"),
                                "without a queue"));
  return unless(spec.session.empty() || spec.retention.orphan == model::Orphan::kKeep,
                "with a session and a retention.orphan other than KEEP",
                "with KEEP, because sessions end with the server");
}

bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= 63 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
}

absl::Status ResolveQueue(model::ResolvedScan& scan) {
  model::ScanSpec& spec = scan.spec;
  if (!spec.queue.name.empty() && !IsName(spec.queue.name)) {
    return InvalidField("queue.name", absl::StrCat("is '", spec.queue.name,
                                                   "'; allowed are 1 to 63 of a-z 0-9 _ . -"));
  }
  if (spec.queue.insert != model::QueueInsert::kDefault && spec.queue.name.empty())
    return InvalidField("queue.name", "is empty; insert needs a queue");
  if (spec.markers.size() > 16)
    return InvalidField("markers",
                        absl::StrCat("has ", spec.markers.size(), " markers; allowed 16"));
  for (size_t i = 0; i < spec.markers.size(); ++i) {
    model::MarkerRule& marker = spec.markers[i];
    const std::string at = absl::StrCat("markers[", i, "].");
    if (marker.name.empty() || marker.name.size() > 63) {
      return InvalidField(at + "name",
                          absl::StrCat("has ", marker.name.size(), " characters; allowed 1 to 63"));
    }
    // A marker for every record would be more events than anybody can take: at least 64 records
    // apart.
    const int64_t unit = marker.at == model::MarkerAt::kVolumeStart ? scan.volume_records
                         : marker.at == model::MarkerAt::kBscanStart
                             ? spec.pattern.ascans_per_bscan + spec.pattern.flyback_records
                             : 1;
    const int64_t least = std::max<int64_t>(1, 64 / unit);
    if (marker.every == 0) marker.every = least;
    OCTAVO_RETURN_IF_ERROR(InRange(at + "every", marker.every, least, (int64_t{1} << 32) - 1));
    if (const int64_t volumes = spec.pattern.volumes; volumes > 0) {
      const int64_t segments = spec.pattern.plan == nullptr
                                   ? spec.pattern.bscans_per_volume
                                   : std::ssize(spec.pattern.plan->kind[0].segments);
      const int64_t places =
          volumes * (marker.at == model::MarkerAt::kVolumeStart  ? 1
                     : marker.at == model::MarkerAt::kBscanStart ? segments
                                                                 : scan.volume_records);
      OCTAVO_RETURN_IF_ERROR(InRange(at + "offset", marker.offset, 0, places - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<model::ResolvedScan> ResolveScan(const model::ScanSpec& spec,
                                                const std::vector<std::string>& replay_roots) {
  model::ResolvedScan scan;
  scan.spec = spec;
  scan.requested = spec.processing;
  if (std::holds_alternative<std::monostate>(spec.source)) return source::NoSource();
  model::Acquisition& a = scan.spec.acquisition;
  if (a.channels == 0) a.channels = 1;
  if (a.record_average == 0) a.record_average = 1;
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.channels", a.channels, 1, 16));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.channel", a.channel, 0, a.channels - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("acquisition.record_average", a.record_average, 1, 256));
  OCTAVO_RETURN_IF_ERROR(
      pattern::ResolvePattern(scan.spec.pattern, model::RecordRateHz(scan.spec)));
  OCTAVO_ASSIGN_OR_RETURN(scan.source, source::InspectSource(spec, replay_roots));
  if (auto* simulated = std::get_if<model::SimulatedSource>(&scan.spec.source))
    *simulated = source::WithDefaults(*simulated, scan.source.raw_type);
  if (auto* push = std::get_if<model::PushSource>(&scan.spec.source))
    *push = source::WithDefaults(*push);
  if (auto* camera = std::get_if<model::CameraSource>(&scan.spec.source))
    *camera = source::WithDefaults(*camera);
  OCTAVO_RETURN_IF_ERROR(ResolveAcquisition(scan));
  if (std::holds_alternative<model::RingSource>(scan.spec.source))
    OCTAVO_RETURN_IF_ERROR(source::ResolveRing(&scan.spec, scan.volume_records));
  scan.warnings.insert(scan.warnings.end(), scan.source.warnings.begin(),
                       scan.source.warnings.end());
  CompareWithFile(&scan);
  CompareShapes(&scan);
  NoteAssumed(spec.pattern, &scan);
  DoubtExtents(&scan);
  OCTAVO_RETURN_IF_ERROR(ResolveQueue(scan));
  OCTAVO_RETURN_IF_ERROR(processing::ResolveProcessing(scan));
  OCTAVO_RETURN_IF_ERROR(ResolveRetention(scan.spec));
  OCTAVO_RETURN_IF_ERROR(ResolveOnRestart(scan.spec));
  OCTAVO_RETURN_IF_ERROR(
      InRange("products.preview_rate_hz", scan.spec.products.preview_rate_hz, -1e9, 1e6));
  if (scan.spec.products.preview_rate_hz == 0) scan.spec.products.preview_rate_hz = 10;
  OCTAVO_RETURN_IF_ERROR(processing::SetGeometry(scan));
  return scan;
}

model::ScanSpec SpecAsTold(const model::ResolvedScan& scan) {
  model::ScanSpec spec = scan.spec;
  pattern::Pattern& p = spec.pattern;
  const bool extents = pattern::IsRaster(p) || p.kind == pattern::PatternKind::kLissajous;
  if (extents && scan.spacing_assumed[0]) p.extent_y_mm = 0;
  if (extents && scan.spacing_assumed[1]) p.extent_x_mm = 0;
  if (!extents && scan.spacing_assumed[0]) p.radius_end_mm = 0;
  if (pattern::IsRadial(p) && scan.spacing_assumed[0]) p.radius_begin_mm = 0;
  return spec;
}

int64_t RecordsWanted(const model::ResolvedScan& scan) {
  const int64_t volumes = scan.spec.pattern.volumes;
  return volumes > std::numeric_limits<int64_t>::max() / 2 / scan.volume_records
             ? 0
             : volumes * scan.volume_records;
}

std::string DescribeSource(const model::ResolvedScan& scan) {
  std::string text = "source: ";
  if (const auto* simulated = std::get_if<model::SimulatedSource>(&scan.spec.source))
    absl::StrAppend(&text, "simulated with seed ", simulated->seed, ",");
  if (const auto* replay = std::get_if<model::ReplaySource>(&scan.spec.source)) {
    absl::StrAppend(&text, "replay of '", replay->path, "', which holds ",
                    scan.source.file_records);
  }
  if (std::holds_alternative<model::PushSource>(scan.spec.source)) text += "push, a client sends";
  if (const auto* camera = std::get_if<model::CameraSource>(&scan.spec.source))
    absl::StrAppend(&text, "camera ", camera->id, ",");
  if (std::holds_alternative<model::RingSource>(scan.spec.source))
    text += "ring, a process on this host writes";
  const double wanted =  // may exceed the range of integers
      static_cast<double>(scan.spec.pattern.volumes) *
      static_cast<double>(scan.volume_records * scan.spec.acquisition.record_average);
  return absl::StrCat(text, " records of ", scan.source.samples_per_record, " samples (",
                      Info(scan.source.raw_type).name,
                      scan.source.packing == math::Packing::kNone ? "" : ", 12 bits packed",
                      "); the scan takes ",
                      wanted == 0 ? "what comes" : absl::StrFormat("%.0f", wanted), "\n");
}

std::string DescribeSpacing(const model::ResolvedScan& scan) {
  static constexpr const char* kAxes[] = {"y", "x", "z"};
  std::string text = "spacing:", assumed;
  for (int i = 0; i < 3; ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", kAxes[i], " ",
                    absl::StrFormat("%.4g", scan.spacing_um[i]), " um");
    if (scan.spacing_assumed[i]) absl::StrAppend(&assumed, assumed.empty() ? "" : ", ", kAxes[i]);
  }
  const bool lateral = scan.spacing_assumed[0] || scan.spacing_assumed[1];
  if (!assumed.empty()) {
    absl::StrAppend(&text, " (", assumed, ": assumed, the request does not say ",
                    lateral ? "the extent" : "", lateral && scan.spacing_assumed[2] ? ", " : "",
                    scan.spacing_assumed[2] ? "the wavelengths or axial_spacing_um" : "", ")");
  }
  return text + "\n";
}

}  // namespace octavo::scan
