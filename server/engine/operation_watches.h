#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "server/engine/scan_watch.h"
#include "server/operation/operation.h"
#include "server/operation/operation_observer.h"

namespace octavo::engine {

/// Watches of operations and waits for their ends, jobs included.
class OperationWatches final : public operation::OperationObserver {
 public:
  using Status = operation::OperationStatus;
  /// `get` looks up an operation by name.
  explicit OperationWatches(std::function<absl::StatusOr<Status>(const std::string&)> get)
      : watches_(std::move(get)) {}
  void OnOperationsChanged() override { watches_.Wake(); }
  StatusWatches<Status>& watches() { return watches_; }

 private:
  StatusWatches<Status> watches_;
};

}  // namespace octavo::engine
