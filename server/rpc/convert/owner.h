#pragma once

#include "server/security/owner.h"

namespace octavo::rpc {

/// Into a message with the fields `owner` and `project`.
template <class Message>
void EncodeOwner(const security::Owner& in, Message* out) {
  out->set_owner(in.name);
  out->set_project(in.project);
}

}  // namespace octavo::rpc
