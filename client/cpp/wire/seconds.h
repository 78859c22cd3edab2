#pragma once

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
  return SecondsOf(time - google::protobuf::util::TimeUtil::GetCurrentTime());
}

}  // namespace octavo
