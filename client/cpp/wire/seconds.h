#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "google/protobuf/util/time_util.h"

namespace octavo {

/// Times of the contract as seconds, for people and for plain structs.
inline double SecondsOf(const google::protobuf::Duration& duration) {
  return static_cast<double>(google::protobuf::util::TimeUtil::DurationToNanoseconds(duration)) *
         1e-9;
}
inline google::protobuf::Duration DurationOf(double seconds) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(std::llround(seconds * 1e9));
}
/// By this host's clock; negative in the past.
inline double SecondsUntil(const google::protobuf::Timestamp& time) {
  // TimeUtil::GetCurrentTime knows whole seconds only.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return 1e-9 * static_cast<double>(google::protobuf::util::TimeUtil::TimestampToNanoseconds(time) -
                                    now_ns);
}
/// How long ago it was; 0 for a moment to come, which another host's clock may tell.
inline double SecondsSince(const google::protobuf::Timestamp& time) {
  return std::max(0.0, -SecondsUntil(time));
}

}  // namespace octavo
