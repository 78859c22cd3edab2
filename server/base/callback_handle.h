#pragma once

namespace octavo::base {

/// Stops a watch or a commit when it is destroyed or cancelled; the callback is no longer running
/// once Cancel returns.
class Handle {
 public:
  virtual ~Handle() = default;
  virtual void Cancel() = 0;
};

}  // namespace octavo::base
