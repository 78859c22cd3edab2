#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "octavo/v1/job.pb.h"
#include "octavo/v1/tomography.pb.h"

#include "client/cpp/cli/commands.h"
#include "gpu/device/dtype.h"

namespace octavo::storage {
class GrowingProjections;
}

namespace octavo::cli {

/// What a user says about a scan that is still being written.
struct FollowOptions {
  double timeout_s = 60;  // without anything new; then the scan has stopped
  /// Frames that will come; nothing: as the files say.
  std::optional<uint32_t> projections, flats, darks;
  bool partial = false;  // a scan that has stopped is reconstructed as far as it came
};

/// Follows a scan that another program writes on this computer, and pushes each frame to a job of
/// the server as soon as it is written (server/storage/projections/growing_projections.h). The
/// files are read here and not by the server, because the HDF5 library may crash on a file that
/// changes while it is read: that ends this program alone.
class ScanFollower {
 public:
  /// `spec` describes the scan as one in a file.
  ScanFollower(Session& session, const v1::TomographyJob& spec, FollowOptions options);
  ~ScanFollower();

  /// Waits until the first projection is there, and how many frames will come is known. Then makes
  /// `spec` one of a push of them. False after a message, with the exit code set: nothing new came
  /// for the time allowed, or the scan cannot be followed.
  bool AwaitBegin(v1::TomographyJob* spec);
  /// Pushes the frames to the job until all have come, the job ends, or `stop` says so. To be
  /// called once, after AwaitBegin. False after a message, with the exit code set, if frames did
  /// not come or could not be sent: the job waits for them still.
  bool Push(const v1::Job& job, const std::function<bool()>& stop);

 private:
  using Clock = std::chrono::steady_clock;
  class Connection;
  enum Kind : size_t { kProjection, kFlat, kDark };
  static constexpr std::array kKinds = {kDark, kFlat, kProjection};  // in the order of sending

  /// Prints a problem that ends the following; returns false.
  bool Refuse(const std::string& problem);
  /// Looks at the files anew. False after a message.
  bool Look();
  bool HasStopped() const;
  /// Finds the number of projections. False after a message; `known` says whether it is known now.
  bool CountProjections(bool* known);
  /// The same of the flat or dark fields. The number is known only when those are there that the
  /// reconstruction cannot do without.
  bool CountFields(Kind kind, bool* known);
  /// Refuses more frames than the server takes.
  bool CheckCounts();
  /// Refuses a half turn that the scan will not have, if all its angles are known already.
  bool CheckHalfTurn();
  /// Adds to the reasons why the following cannot begin.
  void Await(const std::string& what);
  bool Uses(Kind kind) const;
  bool NeedsFlats() const;
  /// "37 of 180 projections, 10 of 10 flat fields, 5 of 5 dark fields".
  std::string Counts() const;
  /// Why the next frame cannot be sent.
  std::string WhatIsMissing() const;
  /// Sends what has come; false after a message.
  bool SendNew(Connection& connection);
  bool SendFrame(Connection& connection, Kind kind);
  bool Complete() const { return sent_ == wanted_; }

  Session& session_;
  const v1::TomographyJob spec_;
  const FollowOptions options_;
  std::unique_ptr<storage::GrowingProjections> scan_;  // null: there is nothing to look at yet
  std::string waits_;                         // why the last look found nothing; "" = it found all
  std::array<int64_t, 3> wanted_{}, sent_{};  // by Kind
  std::array<int64_t, 3> fields_{};           // of the last look
  std::array<Clock::time_point, 3> fields_grown_;
  std::array<int64_t, 4> seen_{};  // what there was: frames by kind, angles
  Clock::time_point grown_;        // when something new was last seen
  DType dtype_ = DType::kU16;      // in which frames are sent
  bool told_flats_ = false;
  uint64_t sequence_ = 0;
};

}  // namespace octavo::cli
