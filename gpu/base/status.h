#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/reason.h"

// Returns from the enclosing function if `expr` is not OK.
#define OCTAVO_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (absl::Status octavo_status_ = (expr); !octavo_status_.ok()) return octavo_status_; \
  } while (false)

#define OCTAVO_STATUS_CONCAT_INNER_(a, b) a##b
#define OCTAVO_STATUS_CONCAT_(a, b) OCTAVO_STATUS_CONCAT_INNER_(a, b)
// NOLINTBEGIN(bugprone-macro-parentheses): `lhs` may be a declaration.
#define OCTAVO_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = *std::move(tmp)
// NOLINTEND(bugprone-macro-parentheses)

// Evaluates `expr` (a StatusOr) and assigns its value to `lhs`, or returns its status.
#define OCTAVO_ASSIGN_OR_RETURN(lhs, expr) \
  OCTAVO_ASSIGN_OR_RETURN_IMPL_(OCTAVO_STATUS_CONCAT_(octavo_or_, __LINE__), lhs, expr)

// All names of gpu/ are in octavo::gpu. The namespace is inline in every file, so that the server,
// whose rooms are namespaces of octavo, uses Device, Stream and the helpers for Status without a
// prefix.
namespace octavo::inline gpu {

/// The machine-readable part of an error. The status carries it in its payload, and clients receive
/// it as google.rpc.ErrorInfo.
struct ErrorInfo {
  Reason reason = Reason::kNone;
  std::string field;  // request field at fault, dotted; may be empty
  std::vector<std::pair<std::string, std::string>> numbers;
};

/// Returns `status` with `info` attached (replacing what was attached before). OK stays OK.
absl::Status WithInfo(absl::Status status, const ErrorInfo& info);

/// The info that WithInfo attached; kNone and empty strings if it attached none.
ErrorInfo InfoOf(const absl::Status& status);

/// The status' reason, or the one with the name of its code if it has no reason; kNone for OK.
/// Error counters and ended scans and jobs report it.
Reason ReasonOrCode(const absl::Status& status);

/// InvalidArgument that names the field: "<field>: <what>".
absl::Status InvalidField(absl::string_view field, absl::string_view what);

/// Puts "<context>: " before the message; code and payload are kept.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace octavo::inline gpu
