#include "server/model/status_types.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"

#include "server/model/stats.h"

namespace octavo::model {

const char* Name(ScanState state) {
  switch (state) {
    case ScanState::kQueued: return "QUEUED";
    case ScanState::kRunning: return "RUNNING";
    case ScanState::kDraining: return "DRAINING";
    case ScanState::kDone: return "DONE";
    case ScanState::kFailed: return "FAILED";
    case ScanState::kCancelled: return "CANCELLED";
    case ScanState::kLost: return "LOST";
  }
  return "?";
}

std::string WaitsFor(const ScanStatus& scan) {
  if (scan.state == ScanState::kQueued && scan.queue_position > 0) {
    return absl::StrCat("its turn: ",
                        scan.queue_position == 1 ? "the scan that runs is"
                                                 : absl::StrCat(scan.queue_position, " scans are"),
                        " before it in the queue ", scan.spec.queue.name);
  }
  if (scan.state != ScanState::kRunning || scan.records_per_second > 0) return "";
  const bool connected = scan.source.connected;
  if (std::holds_alternative<PushSource>(scan.spec.source)) {
    return connected ? "records from the client that is connected"
                     : "a client that pushes its records (IngestService.Push)";
  }
  if (std::holds_alternative<RingSource>(scan.spec.source)) {
    return connected ? "records from the producer that is attached"
                     : "a producer of its ring (IngestService.OpenRing)";
  }
  if (const auto* camera = std::get_if<CameraSource>(&scan.spec.source)) {
    return camera->trigger_source.empty()
               ? "frames of its camera"
               : absl::StrCat("triggers of its camera (", camera->trigger_source, ")");
  }
  return "";
}

const char* Name(VolumeState state) {
  switch (state) {
    case VolumeState::kAcquiring: return "ACQUIRING";
    case VolumeState::kHeld: return "HELD";
    case VolumeState::kCommitting: return "COMMITTING";
    case VolumeState::kCommitted: return "COMMITTED";
    case VolumeState::kDiscarded: return "DISCARDED";
    case VolumeState::kFailed: return "FAILED";
  }
  return "?";
}

const char* Name(Tier tier) {
  switch (tier) {
    case Tier::kDevice: return "DEVICE";
    case Tier::kHost: return "HOST";
    case Tier::kDisk: return "DISK";
  }
  return "?";
}

const char* Name(Move move) {
  switch (move) {
    case Move::kNone: return "";
    case Move::kSpilling: return "SPILLING";
    case Move::kRestoring: return "RESTORING";
    case Move::kRelocating: return "RELOCATING";
  }
  return "?";
}

namespace {

constexpr const char* kQuantities[] = {"",
                                       "raw_spectra",
                                       "raw_spectra_u12p",
                                       "raw_spectra_u12_packed",
                                       "speckle_variance",
                                       "amplitude_decorrelation",
                                       "phase_rad",
                                       "attenuation",
                                       "sum",
                                       "min",
                                       "max",
                                       "mean",
                                       "std",
                                       "percentile",
                                       "count",
                                       "spectrum",
                                       "scaled",
                                       "constant",
                                       "derivative",
                                       "logarithm",
                                       "exponential",
                                       "mask",
                                       "index",
                                       "line_integral",
                                       "transmission"};
static_assert(std::size(kQuantities) == static_cast<size_t>(Quantity::kTransmission) + 1);

}  // namespace

const char* Name(Quantity quantity) { return kQuantities[static_cast<size_t>(quantity)]; }

std::optional<Quantity> QuantityNamed(const std::string& name) {
  const auto* const found = std::find(std::begin(kQuantities), std::end(kQuantities), name);
  if (found == std::end(kQuantities)) return std::nullopt;
  return static_cast<Quantity>(found - std::begin(kQuantities));
}

const char* Name(HolderKind kind) {
  switch (kind) {
    case HolderKind::kNone: return "";
    case HolderKind::kRunningScan: return "running scan";
    case HolderKind::kRunningJob: return "running job";
    case HolderKind::kHeldVolume: return "held volume";
    case HolderKind::kClientBuffer: return "client buffer";
    case HolderKind::kCached: return "cached";
    case HolderKind::kDetached: return "detached";
  }
  return "?";
}

void Histogram::Add(double seconds) {
  const auto bucket = std::lower_bound(kSecondsBounds.begin(), kSecondsBounds.end(), seconds) -
                      kSecondsBounds.begin();
  ++counts[static_cast<size_t>(bucket)];
  ++count;
  // Sums in steps of 2^-24 s are exact (for 17 years), so they do not depend on the order of
  // addition. When the share of a scan moves from one sum to another, the total must not fall by a
  // rounding error, which a scraper would take for a restart.
  sum += std::ldexp(std::round(std::ldexp(seconds, 24)), -24);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  count += other.count;
  sum += other.sum;
}

}  // namespace octavo::model
