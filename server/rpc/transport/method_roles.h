#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

#include "server/memory/quota.h"
#include "server/security/role.h"

namespace octavo::rpc {

/// Whether the calls of a method change something of the server.
enum class Effect : uint8_t { kAsks, kChanges };

/// The least role that may call a method, whether the audit log has its calls, and what they count
/// as while they last.
struct MethodRole {
  absl::string_view method;  // "octavo.v1.ScanService.SubmitScan"
  security::Role role = security::Role::kAdmin;
  Effect effect = Effect::kChanges;
  std::optional<memory::QuotaKind> counts = std::nullopt;
};

/// A line for every method of every service of octavo.v1, and no other one (a test compares it with
/// the services' descriptors). Health checks and reflection are gRPC's own and need no role.
const std::vector<MethodRole>& MethodRoles();

/// The line of the method that takes requests of this type (each method has a type of its own);
/// null if there is none: nobody may call it.
const MethodRole* RoleFor(const google::protobuf::Descriptor* request);

}  // namespace octavo::rpc
