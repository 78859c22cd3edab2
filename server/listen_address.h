#pragma once

#include <string>

#include "absl/status/status.h"

namespace octavo {

/// Splits "host:port" or "[host]:port"; the host without its brackets.
std::string HostOf(const std::string& address);

/// OK if the host of "host:port" resolves only to loopback addresses, so that only programs on this
/// host can reach it. FailedPrecondition says which address others can reach; NotFound if the name
/// does not resolve.
absl::Status CheckLoopback(const std::string& address);

}  // namespace octavo
