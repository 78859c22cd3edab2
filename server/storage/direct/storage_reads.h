#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "server/storage/direct/cufile.h"
#include "server/storage/direct/device_reader.h"
#include "server/storage/direct/root_way.h"

namespace octavo::storage {

/// How files below a root come into devices, for people.
struct RootReads {
  std::string root;
  ReadWay way = ReadWay::kUnmeasured;
  std::string reason;                    // why this way, in words
  const char* word = "";                 // the same as a label of metrics (ReasonWords)
  std::string cufile;                    // why cuFile is not used, in words; empty if it is
  double bytes_per_s[4] = {0, 0, 0, 0};  // by ReadWay; 0 = not measured
  int64_t cufile_errors = 0;
  bool demoted = false;
  std::optional<TimePoint> measured;
};

/// The ways of reading files into devices, by storage root: measured when a root is first read
/// from, told, and chosen anew by each measurement. Thread-safe.
class StorageReads {
  struct Root;

 public:
  struct Config {
    std::vector<std::string> roots;
    ReadSetting setting = ReadSetting::kAuto;
    CuFile::Options cufile;
    const Clock* clock = nullptr;
  };
  /// Where to measure.
  struct Place {
    Device* device = nullptr;
    LendSlab lend;
    StreamRef stream;                     // what is enqueued there comes before
    DeviceSpan<uint8_t> memory;           // is overwritten; at least ProbeFile::kLeastBytes
    std::function<absl::Status()> go_on;  // asked now and then; its error ends the measurement
  };
  /// The way of one read. `way` is null for files below no root.
  struct Choice {
    RootWay* way = nullptr;
    const CuFile* cufile = nullptr;
  };

  explicit StorageReads(Config config);
  ~StorageReads();

  /// Whether files are read straight into devices at all.
  bool enabled() const { return config_.setting != ReadSetting::kOff; }
  /// The way for a file or folder at `path`, which the kernel gave (PathOfOpen). Measures its root
  /// first if that has not been done and `place.memory` is large enough. What comes of it never
  /// fails the read, except for the error of `go_on`.
  absl::StatusOr<Choice> ChooseFor(const std::string& path, const Place& place);
  /// The right to measure a root, which one caller has at a time.
  class Turn {
   public:
    Turn(Turn&& other) noexcept
        : root_(other.root_), taken_(std::exchange(other.taken_, nullptr)) {}
    ~Turn() {
      if (taken_ != nullptr) *taken_ = false;
    }

   private:
    friend StorageReads;
    Turn(Root* root, std::atomic<bool>* taken) : root_(root), taken_(taken) {}
    Root* root_;
    std::atomic<bool>* taken_;
  };
  /// NotFound (NO_FILE): no such root; FailedPrecondition (MEASURING).
  absl::StatusOr<Turn> Begin(const std::string& root);
  /// Measures the root with at most `bytes` bytes of a file. NotFound (NO_FILE): no file in it to
  /// read; ResourceExhausted (DISK_FULL: less than twice `bytes` are free there); errors of the
  /// device, of the drive, and of go_on.
  absl::StatusOr<RootReads> Measure(const Turn& turn, int64_t bytes, const Place& place);

  /// Device memory that Measure takes beside `memory` bytes of Place::memory.
  static absl::StatusOr<int64_t> DeviceBytes(Device& device, int64_t memory);

  std::vector<RootReads> List() const;
  /// What RootReads::word may be.
  static const std::vector<std::string>& ReasonWords();

 private:
  Root* Find(const std::string& root) const;
  const CuFile* OpenCuFile(const Device& device, CuFileRefusal* refusal);
  absl::Status MeasureRoot(Root* root, int64_t bytes, std::chrono::milliseconds patience,
                           const Place& place);
  RootReads Told(const Root& root) const;

  const Config config_;
  std::vector<std::unique_ptr<Root>> roots_;
  std::atomic<bool> measuring_{false};
  mutable Mutex mutex_;
  std::unique_ptr<CuFile> cufile_ ABSL_GUARDED_BY(mutex_);  // opened at the first measurement
};

}  // namespace octavo::storage
