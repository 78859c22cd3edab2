#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

#include "gpu/base/clock.h"

namespace octavo::rpc {

/// The wall clock's time. Nothing is set for a moment that has not come.
google::protobuf::Timestamp WallTime(const TimePoint& time);

/// The same for the wall clock's nanoseconds.
google::protobuf::Timestamp WallTime(int64_t unix_ns);

/// The wall clock's time `seconds` from now. Not for fields of listed resources: each call gives
/// another time, and lists have to be in one order.
google::protobuf::Timestamp TimeFromNow(double seconds);

/// Rounded to nanoseconds. `seconds` is finite.
google::protobuf::Duration ToDuration(double seconds);

double ToSeconds(const google::protobuf::Duration& duration);

/// InvalidArgument for what protobuf does not allow: more than 10,000 years, nanoseconds beyond a
/// second or of the other sign.
absl::Status CheckDuration(const std::string& field, const google::protobuf::Duration& duration);

}  // namespace octavo::rpc
