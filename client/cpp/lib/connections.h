#pragma once

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

#include "client/cpp/wire/login.h"

namespace octavo::client {

using MakeConnection = std::function<std::shared_ptr<grpc::Channel>()>;

/// Makes connections to a server, each separate from all others. They take large messages and are
/// sent ahead, for volumes. What it returns throws LoginError for a file that cannot be used. The
/// first call in a process sets GRPC_EXPERIMENTS (faster reads) unless it is set.
MakeConnection ConnectionsTo(std::string address, Login login);

}  // namespace octavo::client
