#include "server/rpc/convert/time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"

#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

using google::protobuf::util::TimeUtil;

constexpr int64_t kBillion = 1'000'000'000;
constexpr int64_t kMostSeconds = 315'576'000'000;  // of google.protobuf.Duration

/// What 64 bits of nanoseconds hold, about 292 years.
constexpr double kMostExact = 9e9;

int64_t Nanoseconds(double seconds) {
  return std::llround(std::clamp(seconds, -kMostExact, kMostExact) * 1e9);
}

}  // namespace

google::protobuf::Timestamp WallTime(const TimePoint& time) { return WallTime(time.unix_ns); }

google::protobuf::Timestamp WallTime(int64_t unix_ns) {
  return TimeUtil::NanosecondsToTimestamp(unix_ns);
}

google::protobuf::Timestamp TimeFromNow(double seconds) {
  return TimeUtil::NanosecondsToTimestamp(SystemClock().Now().unix_ns + Nanoseconds(seconds));
}

google::protobuf::Duration ToDuration(double seconds) {
  return TimeUtil::NanosecondsToDuration(Nanoseconds(seconds));
}

double ToSeconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

absl::Status CheckDuration(const std::string& field, const google::protobuf::Duration& duration) {
  const bool opposite = (duration.seconds() > 0 && duration.nanos() < 0) ||
                        (duration.seconds() < 0 && duration.nanos() > 0);
  if (!opposite && duration.seconds() <= kMostSeconds && duration.seconds() >= -kMostSeconds &&
      std::abs(int64_t{duration.nanos()}) < kBillion)
    return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat("is no duration (", duration.seconds(), " s and ", duration.nanos(),
                          " ns); allowed are at most ", kMostSeconds,
                          " s, and less than a second of ns with the same sign"));
}

}  // namespace octavo::rpc
