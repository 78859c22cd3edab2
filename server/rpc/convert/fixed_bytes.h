#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace octavo::rpc {

/// The bytes of a message, the entries of its maps in a fixed order: equal messages have equal
/// bytes, as what tells a retry from another request needs. `SerializeAsString` gives no such
/// promise; tests/layering_test.py keeps it out of this folder.
std::string FixedBytes(const google::protobuf::Message& message);

}  // namespace octavo::rpc
