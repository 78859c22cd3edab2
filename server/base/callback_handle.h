#pragma once

namespace octavo::base {

/// Stops a watch or a commit when destroyed or told so; the callback is not running any more once
/// Cancel returns.
class Handle {
 public:
  virtual ~Handle() = default;
  virtual void Cancel() = 0;
};

}  // namespace octavo::base
