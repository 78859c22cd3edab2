#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace octavo::rpc {

/// What tells a retry from another request: the SHA-256 of the body, whose maps count in the order
/// of their keys.
std::string RequestDigest(const google::protobuf::Message& body);

}  // namespace octavo::rpc
