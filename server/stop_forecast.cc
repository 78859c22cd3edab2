#include "server/stop_forecast.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "gpu/base/log.h"
#include "gpu/base/unique_fd.h"
#include "server/base/exception_to_status.h"
#include "server/keep_held.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::drain {

absl::StatusOr<double> MeasureDisk(const std::string& folder, int64_t bytes) {
  const UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!fd) return storage::ErrnoStatus(errno, "creating a file without a name in", folder);
  constexpr int64_t kPiece = 1 << 20;
  std::vector<uint64_t> piece(kPiece / sizeof(uint64_t));
  uint64_t word = 0x9E3779B97F4A7C15;
  for (uint64_t& one : piece) {  // nothing that a file system could compress
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    one = word;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const absl::Status written = storage::WriteAllAt(
        fd.get(), folder, piece.data(), static_cast<size_t>(std::min(kPiece, bytes - at)), at);
    if (!written.ok()) return written;
  }
  if (::fdatasync(fd.get()) != 0) return storage::ErrnoStatus(errno, "syncing", folder);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return static_cast<double>(bytes) / std::max(seconds, 1e-6);
}

DiskRate::DiskRate(const std::string& folder, Of of, double remembered,
                   std::function<absl::StatusOr<double>(const std::string&, int64_t)> measure)
    : of_(of), measured_(std::make_shared<std::atomic<double>>(remembered)) {
  if (folder.empty()) return;
  std::thread([folder, remembered, measure = std::move(measure), measured = measured_] {
    pthread_setname_np(pthread_self(), "oct-rate");
    const auto rate = base::ExceptionToStatus([&] { return measure(folder, kProbeBytes); });
    if (rate.ok()) {
      *measured = remembered > 0 ? std::min(*rate, remembered) : *rate;
    } else {
      Log(LogLevel::kWarning,
          "speed of the folder for held volumes not measured: the time of a stop is not known",
          {{"folder", folder}, {"error", std::string(rate.status().message())}});
    }
  }).detach();
}

double DiskRate::BytesPerSecond(const model::Stats& stats) const {
  // Of one spill or commit: several at once are not slower together.
  if (of_ == Of::kCommits) {
    if (stats.commit_bytes < kEnoughBytes || stats.commit_seconds.sum <= 0) return *measured_;
    return static_cast<double>(stats.commit_bytes) / stats.commit_seconds.sum;
  }
  const auto spills = stats.spill_seconds.find(Name(model::Tier::kDisk));
  for (const model::TierUse& tier : stats.tiers) {
    if (tier.tier != model::Tier::kDisk || tier.spilled_bytes < kEnoughBytes ||
        spills == stats.spill_seconds.end() || spills->second.sum <= 0)
      continue;
    return static_cast<double>(tier.spilled_bytes) / spills->second.sum;
  }
  return *measured_;
}

model::StopForecast ForecastStop(const std::vector<model::VolumeStatus>& volumes,
                                 int64_t room_bytes, double bytes_per_second,
                                 double limit_seconds) {
  model::StopForecast forecast{.room_bytes = room_bytes,
                               .bytes_per_second = bytes_per_second,
                               .limit_seconds = limit_seconds};
  for (const model::VolumeStatus& volume : volumes) {
    if (!AtRisk(volume)) continue;
    ++forecast.volumes;
    forecast.bytes += volume.bytes;
  }
  if (bytes_per_second > 0)
    forecast.seconds = static_cast<double>(forecast.bytes) / bytes_per_second;
  return forecast;
}

}  // namespace octavo::drain
