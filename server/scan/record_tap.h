#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/base/clock.h"
#include "server/model/resolved_scan.h"
#include "server/processing/record_choice.h"
#include "server/publish/publisher.h"
#include "server/scan/completion.h"
#include "server/scan/device_lanes.h"
#include "server/scan/record_frames.h"

namespace octavo::scan {

/// Copies records for subscribers of spectra and A-scans while their block is in host memory, and
/// passes them to RecordFrames. It uses no device. Without subscribers it costs one comparison of
/// times for each segment, and a look at the publisher kLookNs apart.
///
/// At most one copy every kLookNs for each column, and no more than kBytesPerSecond: an A-scan
/// whose background is the mean of many records comes less often. Compute thread.
class RecordTap {
 public:
  static constexpr int64_t kLookNs = 40'000'000;  // 25 Hz
  static constexpr int64_t kBytesPerSecond = int64_t{128} << 20;
  static constexpr int64_t kMostBytes = int64_t{32} << 20;  // of one copy
  static constexpr size_t kMostPositions = 16;              // columns, twice; others are lost

  RecordTap(std::string scan, publish::Publisher* publisher, RecordFrames* frames)
      : scan_(std::move(scan)), publisher_(publisher), frames_(frames) {}

  /// Why the scan's A-scans and corrected spectra cannot be made of single records; empty: they
  /// can.
  static std::string WhyNotAlone(const model::ResolvedScan& scan);

  /// Whether Take would do anything with records that come now.
  bool Wants(int64_t now_ns);
  /// Records of a volume in the order of their numbers, at `data`. `scan`: what the volume is made
  /// with. `active`: the volume; null if it has ended.
  void Take(const std::shared_ptr<const model::ResolvedScan>& scan, const uint8_t* data,
            const Segment& segment, const ActiveVolume* active, TimePoint acquired, int64_t now_ns);
  void Free();

 private:
  struct Position {
    int64_t column = -1;    // -1: any
    bool computed = false;  // corrected or transformed, not as stored
    std::vector<publish::TopicKey> keys;
    int64_t due_ns = 0;
    std::unique_ptr<RecordCopy> copy;  // being filled
  };
  void Look();
  void Begin(Position& position, const Segment& segment, int64_t first, int64_t now_ns);
  void Fill(Position& position, const uint8_t* data, const Segment& segment, int64_t first,
            const ActiveVolume* active, TimePoint acquired);

  const std::string scan_;
  publish::Publisher* const publisher_;
  RecordFrames* const frames_;
  int64_t next_look_ns_ = 0;
  std::vector<Position> positions_;
  std::shared_ptr<const processing::RecordChoice> choice_;
};

}  // namespace octavo::scan
