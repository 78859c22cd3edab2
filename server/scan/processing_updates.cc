#include "server/scan/processing_updates.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/processing/stored_form.h"
#include "server/scan/resolve_scan.h"

namespace octavo::scan {
namespace {

std::string PlanOf(const model::ResolvedScan& scan, const std::string& chain) {
  return DescribeSource(scan) + chain + "\n" + DescribeSpacing(scan) +
         processing::DescribeMemory(scan, VolumeSlots(scan));
}

}  // namespace

ProcessingUpdates::ProcessingUpdates(std::string name, const model::ResolvedScan& scan,
                                     memory::Ledger* ledger, const std::vector<ScanDevice>& devices)
    : name_(std::move(name)), owner_(scan.spec.owner), ledger_(ledger), devices_(devices) {
  MutexLock lock(mutex_);
  latest_ = scan;
  told_.name = name_;
  told_.spec = SpecAsTold(scan);
  told_.device = base::DeviceName(devices[0].index);
  for (const ScanDevice& of : devices) {
    if (devices.size() > 1) told_.spread_devices.push_back(base::DeviceName(of.index));
  }
}

// The charge ends with the processor. However often a scan is updated, it holds at most two
// processors plus those that the device still uses.
absl::StatusOr<std::shared_ptr<SpectralProcessor>> ProcessingUpdates::Make(
    const model::ResolvedScan& scan, const ScanDevice& device) {
  OCTAVO_ASSIGN_OR_RETURN(
      auto charges,
      ledger_->Reserve(device.index, name_, scan.spec.title,
                       {{.kind = model::NeedKind::kChainWorkspace,
                         .bytes = SpectralProcessor::DeviceBytes(scan.chain, *device.device),
                         .count = 1}},
                       nullptr, owner_));
  const auto held = std::make_shared<memory::ChargeHolder>(ledger_, std::move(charges));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<SpectralProcessor> created,
                          SpectralProcessor::Create(scan.chain, *device.device));
  return std::shared_ptr<SpectralProcessor>(created.release(),
                                            [held](SpectralProcessor* p) { delete p; });
}

absl::Status ProcessingUpdates::Offer(const model::ResolvedScan& updated) {
  std::vector<std::shared_ptr<SpectralProcessor>> made;
  for (const ScanDevice& device : devices_) {
    OCTAVO_ASSIGN_OR_RETURN(auto processor, Make(updated, device));
    made.push_back(std::move(processor));
  }
  MutexLock lock(mutex_);
  if (closed_) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name_, " has ended")),
                    {.reason = Reason::kScanState, .field = "name", .numbers = {}});
  }
  next_.swap(made);
  latest_ = updated;
  told_.spec.processing = updated.spec.processing;
  told_.plan = PlanOf(updated, next_[0]->Describe());
  return absl::OkStatus();
}

bool ProcessingUpdates::Take(Update* update) {
  MutexLock lock(mutex_);
  if (next_.empty()) return false;
  update->processors = std::exchange(next_, {});
  update->scan = latest_;
  return true;
}

model::ResolvedScan ProcessingUpdates::Latest() {
  MutexLock lock(mutex_);
  return latest_;
}

void ProcessingUpdates::Describe(const std::string& chain) {
  MutexLock lock(mutex_);
  told_.plan = PlanOf(latest_, chain);
}

void ProcessingUpdates::AddTo(model::ScanStatus* status) {
  MutexLock lock(mutex_);
  status->name = told_.name;
  status->spec = told_.spec;
  status->device = told_.device;
  status->spread_devices = told_.spread_devices;
  status->plan = told_.plan;
}

int64_t ProcessingUpdates::ListedBytes() {
  MutexLock lock(mutex_);
  const model::ScanSpec& spec = told_.spec;
  const model::Processing& p = spec.processing;
  const size_t doubles = spec.pattern.points_x_mm.size() + spec.pattern.points_y_mm.size() +
                         p.k_index.size() + p.k_polynomial.size() + p.k_wavelength_nm.size();
  const size_t floats =
      p.background_spectrum.size() + p.window_values.size() + p.dispersion_phase.size();
  auto bytes = static_cast<int64_t>(8 * doubles + 4 * floats + told_.plan.size());
  for (const auto& [key, value] : spec.labels) bytes += std::ssize(key) + std::ssize(value) + 64;
  return bytes;
}

void ProcessingUpdates::Close() {
  std::vector<std::shared_ptr<SpectralProcessor>> unused;  // destroyed without the lock
  MutexLock lock(mutex_);
  closed_ = true;
  unused.swap(next_);
}

void ProcessingUpdates::LetGo() {
  MutexLock lock(mutex_);
  latest_ = model::ResolvedScan();
}

}  // namespace octavo::scan
