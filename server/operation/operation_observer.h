#pragma once

namespace octavo::operation {

/// Learns that operations have changed: the one way in which the OperationTable calls what lies
/// above it.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  /// The state or the stage of some operation has changed. (Progress within a stage is not told:
  /// who shows it looks from time to time.) Any thread, without locks. Must not wait.
  virtual void OnOperationsChanged() = 0;
};

}  // namespace octavo::operation
