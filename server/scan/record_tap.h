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
/// passes them to RecordFrames. It uses no device. Every kLookNs it asks the publisher what
/// subscribers want. Without subscribers, a segment costs it one comparison of times.
///
/// It copies a column at most once every kFrameNs, and at most kBytesPerSecond: an A-scan whose
/// background is the mean of many records comes less often. The compute thread calls it.
class RecordTap {
 public:
  static constexpr int64_t kLookNs = 40'000'000;   // between two questions to the publisher
  static constexpr int64_t kFrameNs = 40'000'000;  // between two frames of a column: 25 Hz
  static constexpr int64_t kBytesPerSecond = int64_t{128} << 20;
  static constexpr int64_t kMostBytes = int64_t{32} << 20;  // of one copy
  // Columns, each as stored and as computed. Frames of more columns count as lost.
  static constexpr size_t kMostPositions = 16;

  RecordTap(std::string scan, publish::Publisher* publisher, RecordFrames* frames)
      : scan_(std::move(scan)), publisher_(publisher), frames_(frames) {}

  /// Why the server cannot make the scan's A-scans and corrected spectra of single records; empty:
  /// it can.
  static std::string WhyNotAlone(const model::ResolvedScan& scan);

  /// Whether a subscriber wants records that come now.
  bool Wants(int64_t now_ns);
  /// Takes records of a volume, at `data`, in the order of their numbers. `scan`: the processing of
  /// the volume. `active`: the volume; null if it has ended.
  void Take(const std::shared_ptr<const model::ResolvedScan>& scan, const uint8_t* data,
            const Segment& segment, const ActiveVolume* active, TimePoint acquired, int64_t now_ns);
  /// Lets go of all copies.
  void Free();

 private:
  struct Position {
    int64_t column = -1;    // -1: any
    bool computed = false;  // corrected or transformed, not as stored
    std::vector<publish::TopicKey> keys;
    int64_t due_ns = 0;
    std::unique_ptr<RecordCopy> copy;  // Fill fills it; null: none is begun
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
