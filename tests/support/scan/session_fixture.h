#pragma once

// A scan session without an engine: prepared records on the devices of a backend.

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/device/device.h"
#include "server/base/resource_names.h"
#include "server/memory/stripe_layout.h"
#include "server/model/resolved_scan.h"
#include "server/scan/resolve_scan.h"
#include "server/scan/scan_session.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_runner.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// u16 records that depend only on their number and the seed: noise on a fringe, 12 bits.
class KnownRecords {
 public:
  KnownRecords(uint64_t seed, int64_t samples) : seed_(seed), samples_(samples) {}
  void Write(int64_t record, uint16_t* out) const {
    uint64_t state = (seed_ + static_cast<uint64_t>(record) * 0x9E3779B97F4A7C15u) | 1;
    const uint64_t bin = 2 + state % static_cast<uint64_t>(samples_ / 2 - 4);
    for (int64_t j = 0; j < samples_; ++j) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double fringe = 900 * std::cos(2 * 3.14159265358979 * static_cast<double>(bin) *
                                           static_cast<double>(j) / static_cast<double>(samples_));
      out[j] = static_cast<uint16_t>(2000 + fringe + static_cast<double>(state >> 56));
    }
  }
  int64_t samples() const { return samples_; }

 private:
  const uint64_t seed_;
  const int64_t samples_;
};

/// Delivers `total` known records in order, at most `most(random)` at a time; calls `before` before
/// each delivery.
class KnownSource final : public Source {
 public:
  KnownSource(KnownRecords records, int64_t total, std::function<int64_t()> most,
              std::function<void(int64_t)> before)
      : records_(records), total_(total), most_(std::move(most)), before_(std::move(before)) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    if (before_) before_(next_);
    if (stop.stop_requested()) return SourceBlock{};
    const int64_t count = std::min({max_records, total_ - next_, most_ ? most_() : max_records});
    auto* out = static_cast<uint16_t*>(slot);
    for (int64_t r = 0; r < count; ++r) records_.Write(next_ + r, out + r * records_.samples());
    const SourceBlock block{.first_record = next_, .records = count, .acquired = clock_.Now()};
    next_ += count;
    return block;
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override {
    return absl::InternalError("this source waits");
  }
  bool CanWait() const override { return true; }

 private:
  const SystemClock clock_;
  const KnownRecords records_;
  const int64_t total_;
  const std::function<int64_t()> most_;
  const std::function<void(int64_t)> before_;
  int64_t next_ = 0;
};

/// A resolved scan of known records of 64 samples; `change` may modify the spec before it is
/// resolved.
inline ResolvedScan ResolvedKnown(Pattern pattern,
                                  const std::function<void(ScanSpec&)>& change = nullptr) {
  const auto owned =
      std::make_unique<ScanSpec>();  // GCC 12 takes its variant for uninitialised on the stack
  ScanSpec& spec = *owned;
  spec.source.emplace<SimulatedSource>().as_fast_as_possible = true;
  spec.acquisition = {.samples_per_record = 64,
                      .raw_type = DType::kU16,
                      .raw_type_given = true,
                      .records_per_block = 50};
  spec.pattern = std::move(pattern);
  spec.processing.background = BackgroundMode::kNone;
  spec.processing.k_mode = KMode::kNone;
  spec.processing.dispersion_a2 = 1e-3;
  spec.processing.dtype = DType::kU8;
  spec.processing.dtype_given = true;
  spec.processing.has_levels = true;  // some voxels are clipped at either end
  spec.processing.level_lo = 12;
  spec.processing.level_hi = 35;
  spec.products.aip = true;
  spec.products.preview_rate_hz = -1;
  if (change) change(spec);
  auto resolved = ResolveScan(spec, {});
  EXPECT_THAT(resolved.status(), octavo::testing::IsOk());
  return *std::move(resolved);
}

/// The result of a run: all contents of the held volumes.
struct RunOutcome {
  ScanStatus scan;
  std::vector<VolumeStatus> volumes;
  std::vector<std::vector<uint8_t>> voxels, mips, aips;  // of each held volume
};

/// Runs a scan on `devices` (home first; a single device: not spread) until it has ended.
class SessionRun {
 public:
  explicit SessionRun(std::vector<Device*> devices)
      : devices_(std::move(devices)), ledger_(std::vector<int64_t>(16, int64_t{1} << 30)) {}

  Publisher& publisher() { return publisher_; }
  Ledger& ledger() { return ledger_; }
  VolumeStore& store() { return store_; }
  ScanSession* session() { return session_.get(); }

  absl::Status Start(const ResolvedScan& scan, std::unique_ptr<Source> source) {
    SessionContext context = WithObserver({.device = devices_[0],
                                           .ledger = &ledger_,
                                           .store = &store_,
                                           .publisher = &publisher_,
                                           .clock = &clock_},
                                          &observer_);
    for (size_t d = 1; d < devices_.size(); ++d) {
      OCTAVO_ASSIGN_OR_RETURN(auto charges,
                              ledger_.Reserve(static_cast<int>(d), "scans/x", "",
                                              PeerNeeds(scan, *devices_[d]), nullptr));
      context.peers.push_back(
          {.device = devices_[d], .index = static_cast<int>(d), .charges = std::move(charges)});
    }
    OCTAVO_ASSIGN_OR_RETURN(auto charges,
                            ledger_.Reserve(0, "scans/x", "", Needs(scan, *devices_[0]), nullptr));
    OCTAVO_ASSIGN_OR_RETURN(session_, ScanSession::Create("scans/x", scan, std::move(source),
                                                          std::move(charges), std::move(context)));
    session_->Start();
    return absl::OkStatus();
  }

  ScanStatus WaitForTheEnd() {
    news_.Await([&] { return session_->finished(); });
    return session_->Status();
  }

  RunOutcome Outcome() {
    RunOutcome outcome{.scan = WaitForTheEnd(), .volumes = store_.List()};
    for (const VolumeStatus& volume : outcome.volumes) {
      const auto pinned = store_.Hold(volume.name, HoldKind::kMemory);
      if (!pinned.ok()) continue;
      outcome.voxels.push_back(ReadBox(
          *pinned,
          {.start = {0, 0, 0}, .count = {volume.shape[0], volume.shape[1], volume.shape[2]}}));
      const int64_t plane = volume.shape[0] * volume.shape[1];
      outcome.mips.push_back(Read(pinned->slot->mip, plane * SizeOf(ProjectionOf(volume.dtype))));
      if (pinned->slot->aip) outcome.aips.push_back(Read(pinned->slot->aip, plane * 4));
    }
    return outcome;
  }

  static RunOutcome Run(std::vector<Device*> devices, const ResolvedScan& scan,
                        std::unique_ptr<Source> source) {
    SessionRun run(std::move(devices));
    EXPECT_THAT(run.Start(scan, std::move(source)), octavo::testing::IsOk());
    return run.Outcome();
  }

  /// Works for a volume on any device.
  std::vector<uint8_t> ReadBox(const VolumeHold& pinned, const Box3& box) {
    std::vector<uint8_t> got(static_cast<size_t>(box.count[0] * box.count[1] * box.count[2] *
                                                 SizeOf(pinned.status.dtype)),
                             0xA5);
    auto stream = devices_[0]->NewStream(StreamPriority::kNormal);
    EXPECT_THAT(stream.status(), octavo::testing::IsOk());
    EXPECT_THAT(
        CopyVolumeBox(*devices_[0], stream->ref(), got.data(), *pinned.slot, pinned.status, box),
        octavo::testing::IsOk());
    EXPECT_THAT(stream->ref().Synchronize(), octavo::testing::IsOk());
    return got;
  }

 private:
  std::vector<uint8_t> Read(const DeviceBuffer& from, int64_t bytes) {
    std::vector<uint8_t> got(static_cast<size_t>(bytes));
    auto stream = devices_[0]->NewStream(StreamPriority::kNormal);
    EXPECT_THAT(stream.status(), octavo::testing::IsOk());
    EXPECT_THAT(devices_[0]->CopyToHost(stream->ref(), got.data(), from.data(), bytes),
                octavo::testing::IsOk());
    EXPECT_THAT(stream->ref().Synchronize(), octavo::testing::IsOk());
    return got;
  }

  const std::vector<Device*> devices_;
  const SystemClock clock_;
  Ledger ledger_;
  VolumeStore store_{&ledger_, &clock_};
  Publisher publisher_{&clock_};
  octavo::testing::News news_;
  NewsOfScan observer_{&news_};
  std::unique_ptr<ScanSession> session_;
};

/// Expects that every held volume of `got` equals that of `wanted`, byte by byte, projections
/// included.
inline void ExpectSame(const RunOutcome& got, const RunOutcome& wanted) {
  ASSERT_EQ(got.voxels.size(), wanted.voxels.size());
  for (size_t v = 0; v < wanted.voxels.size(); ++v) {
    EXPECT_EQ(got.volumes[v].digest, wanted.volumes[v].digest);
    EXPECT_TRUE(got.voxels[v] == wanted.voxels[v]) << "voxels of volume " << v;
    EXPECT_TRUE(got.mips[v] == wanted.mips[v]) << "MIP of volume " << v;
    EXPECT_EQ(got.volumes[v].missing_ascans, wanted.volumes[v].missing_ascans);
    EXPECT_EQ(got.volumes[v].clipped_below, wanted.volumes[v].clipped_below);
    EXPECT_EQ(got.volumes[v].clipped_above, wanted.volumes[v].clipped_above);
  }
  EXPECT_TRUE(got.aips == wanted.aips);
}

}  // namespace octavo::engine::testing
