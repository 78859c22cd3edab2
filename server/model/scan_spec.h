#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"
#include "gpu/math/spectral.h"
#include "gpu/spectral/spectral_design.h"
#include "server/pattern/pattern.h"
#include "server/security/owner.h"
#include "server/storage/formats/writer.h"

// A client's specification of a scan in plain types: the server's counterpart of
// octavo.v1.ScanSpec. 0, empty and kDefault mean "choose"; ResolveScan (resolve_scan.h) fills them
// in and checks everything.
namespace octavo::model {

struct SimulatedLayer {
  double depth_um = 0;         // optical depth of the interface at the centre of the field
  double reflectivity = 0.01;  // field amplitude relative to the reference arm
  double tilt_um_per_mm = 0;   // along x
  double waviness_um = 0;
};

struct SimulatedSource {
  uint64_t seed = 0;
  double centre_wavelength_nm = 0;  // 0 = 840
  double bandwidth_nm = 0;          // 0 = 94
  double nonlinearity = 0;
  double dispersion_a2 = 0, dispersion_a3 = 0;
  double noise_counts = 0;          // 0 = 2; negative = none
  double fixed_pattern = 0;         // 0 = 0.002; negative = none
  uint32_t adc_bits = 0;            // 0 = 12 (8 for U8)
  double motion_um_per_volume = 0;  // 0 = 4; negative = none
  bool as_fast_as_possible = false;
  bool repeat_block = false;  // repeat the first block, at no cost
  static constexpr int64_t kMostLayers = 64;
  std::vector<SimulatedLayer> layers;
  std::optional<uint32_t> scatterers;  // unset = 64 without layers, else none
};

struct ReplaySource {
  std::string path;
  double rate_hz = 0;  // 0 = as fast as possible
  uint32_t loops = 0;  // 0 = until the scan has its volumes
  uint64_t header_bytes = 0;
  bool allow_partial = false;
};

struct PushSource {
  int64_t credit_blocks = 0;  // 0 = 4
  double idle_timeout_s = 0;  // 0 = 60; negative = never
};

struct RingSource {
  int64_t slots = 0;           // 0 = chosen
  double idle_timeout_s = 0;   // 0 = 60; negative = never
  double restart_grace_s = 0;  // 0 = idle_timeout_s; negative = none
  bool producer_waits = false;
};

struct CameraSource {
  std::string id;                             // empty = the only one
  std::string pixel_format;                   // empty = the camera's setting
  std::optional<int64_t> offset_x, offset_y;  // unset = the camera's setting
  int64_t width = 0, height = 0;              // 0 = the camera's setting
  double exposure_us = 0, frame_rate_hz = 0;  // 0 = the camera's setting
  std::optional<double> gain;                 // unset = the camera's setting
  std::string trigger_source;                 // empty = free running
  int64_t buffers = 0;                        // 0 = 16
  double frame_timeout_s = 0;                 // 0 = 5, with a trigger never; negative = never
};

/// Scans of one queue acquire one after another. An empty name: no queue.
enum class QueueInsert : uint8_t {
  kDefault = 0,
  kAppend = 1,
  kInterruptAtVolume = 2,
  kInterruptNow = 3
};
struct QueueOptions {
  std::string name;
  QueueInsert insert = QueueInsert::kDefault;
};

/// A place in the scan at which an event is published.
enum class MarkerAt : uint8_t { kVolumeStart = 1, kBscanStart = 2, kRecord = 3 };
struct MarkerRule {
  std::string name;
  MarkerAt at = MarkerAt::kVolumeStart;
  int64_t every = 0;   // 0 = 1
  int64_t offset = 0;  // index of the first one
};

struct Acquisition {
  int64_t samples_per_record = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;  // 12 bits packed: raw_type is kU16
  bool raw_type_given = false;
  double record_rate_hz = 0;
  int64_t records_per_block = 0;
  int64_t ring_blocks = 0;
  int64_t channels = 0;  // 0 = 1
  int64_t channel = 0;
  int64_t record_average = 0;  // 0 = 1; records of the source in one of the pattern
  int64_t adc_bits = 0;  // of a sample; 0 = as the source declares; resolved: 0 = not known (F32)

  /// Bytes of a record of the source, all channels.
  int64_t SourceRecordBytes() const {
    return math::PackedBytes(packing, samples_per_record * (channels == 0 ? 1 : channels),
                             SizeOf(raw_type));
  }
};

using RasterPattern = pattern::Pattern;  // a raster unless `kind` says otherwise

enum class BackgroundMode : uint8_t {
  kDefault = 0,
  kNone = 1,
  kStatic = 2,
  kRolling = 3,
  kBscan = 4
};
enum class KMode : uint8_t { kDefault, kNone, kIndex, kPolynomial, kWavelength, kFromSource };
enum class KInterpolation : uint8_t { kDefault = 0, kLinear = 1, kCubic = 2, kLanczos = 3 };
enum class ValueKind : uint8_t {
  kDefault = 0,
  kDb = 1,
  kMagnitude = 2,
  kPower = 3,
  kReal = 4,
  kComplex = 5
};
enum class FixedPatternNoise : uint8_t { kDefault = 0, kKeep = 1, kMean = 2, kQuietSegment = 3 };

struct Processing {
  BackgroundMode background = BackgroundMode::kDefault;
  std::vector<float> background_spectrum;
  int64_t background_group_records =
      0;  // 0 = a B-scan with its flyback, or as many as have 64 records
  int64_t background_window_records = 0;  // 0 = the group
  KMode k_mode = KMode::kDefault;
  std::vector<double> k_index;
  std::vector<double> k_polynomial;
  std::vector<double> k_wavelength_nm;
  KInterpolation k_interpolation = KInterpolation::kDefault;
  int window = 0;  // 0 = default (hann), else 1 + WindowKind
  std::vector<float> window_values;
  double dispersion_a2 = 0, dispersion_a3 = 0;
  std::vector<float> dispersion_phase;
  int64_t fft_length = 0;
  int64_t first_bin = 0;
  int64_t depth = 0;
  ValueKind value = ValueKind::kDefault;
  bool has_levels = false;
  float level_lo = 0, level_hi = 0;
  DType dtype = DType::kU8;
  bool dtype_given = false;
  double axial_spacing_um = 0;
  double refractive_index = 0;  // 0 = 1
  FixedPatternNoise fixed_pattern_noise = FixedPatternNoise::kDefault;
};

struct Products {
  bool mip = true;
  bool aip = false;
  double slab_begin_um = 0, slab_end_um = 0;
  int angiography = 0;         // 0 = none, else 1 + MotionContrast
  double preview_rate_hz = 0;  // 0 = 10; negative = none
};

/// Where the bytes of a held volume are. Values as in octavo.v1.Tier.
enum class Tier : uint8_t { kDevice = 1, kHost = 2, kDisk = 3 };
enum class RetentionMode : uint8_t { kDefault = 0, kLive = 1, kCapture = 2 };
enum class OnFull : uint8_t {
  kDefault = 0,
  kStopAtVolume = 1,
  kDropNew = 2,
  kSpillHost = 3,
  kSpillDisk = 4
};
inline bool Spills(OnFull on_full) {
  return on_full == OnFull::kSpillHost || on_full == OnFull::kSpillDisk;
}
enum class Orphan : uint8_t {
  kDefault = 0,
  kKeep = 1,
  kSpillDisk = 2,
  kCommitDefault = 3,
  kDiscard = 4
};
enum class Disposition : uint8_t { kDefault = 0, kAsk = 1, kAutoCommit = 2, kAutoDiscard = 3 };
enum class Overrun : uint8_t { kDefault = 0, kFailScan = 1, kDropBlock = 2 };

/// What becomes of a scan when the server ends or dies.
enum class OnRestart : uint8_t { kDefault = 0, kEnd = 1, kResume = 2 };

struct CommitOptions {
  std::string destination;  // template: {scan} {index} {index:05} {title} {date}
  storage::WriterOptions writer;
};

struct Retention {
  RetentionMode mode = RetentionMode::kDefault;
  int64_t hold_slots = 0;
  OnFull on_full = OnFull::kDefault;
  Disposition disposition = Disposition::kDefault;
  CommitOptions auto_commit;
  int64_t keep_last = 0;                   // LIVE; 0 = as many as fit
  OnFull on_tier_full = OnFull::kDefault;  // kStopAtVolume or kDropNew
  double ttl_seconds = 0;                  // 0 = never
  double ttl_warning_seconds = 0;
  Orphan orphan = Orphan::kDefault;
  bool hold_raw = false;
};

struct Subject {
  std::string id, site, note;
};

/// Several devices for one scan. All fields as in octavo.v1.Spread.
struct Spread {
  bool given = false;
  int64_t count = 0;                 // 0 = all
  std::vector<std::string> devices;  // devices/<n>, home first; empty = chosen
  bool striped = false;              // volumes stay on the devices that computed them
};

struct DerivedVolumeRecipes;  // volume_operation.h

struct ScanSpec {
  std::string request_id;
  // Digest of the request body: distinguishes a retry from another request with the same id.
  std::string request_digest;
  std::string title;
  std::map<std::string, std::string> labels;
  Subject subject;
  std::variant<std::monostate, SimulatedSource, ReplaySource, PushSource, CameraSource, RingSource>
      source;
  Acquisition acquisition;
  pattern::Pattern pattern;
  Processing processing;
  Products products;
  Retention retention;
  std::string device;  // "", "auto", "devices/<n>"
  Spread spread;
  Overrun overrun = Overrun::kDefault;
  QueueOptions queue;
  std::vector<MarkerRule> markers;
  OnRestart on_restart = OnRestart::kDefault;
  // Not part of the client's specification:
  std::string session;       // sessions/<id> with which it was submitted
  std::string trace_id;      // of the trace that its submission belongs to; empty = none
  std::string resumed_from;  // scans/<id> of an earlier daemon in whose place it is; empty = none
  security::Owner owner;
  std::shared_ptr<const DerivedVolumeRecipes> chains;  // null: none
};

}  // namespace octavo::model
