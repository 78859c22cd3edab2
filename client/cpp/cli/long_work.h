#pragma once

#include <future>
#include <optional>
#include <string>

#include "octavo/v1/operation.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/interrupt.h"

namespace octavo::cli {

/// Cancels an operation on the server. Prints a failed call like Check.
std::optional<v1::Operation> CancelOperation(Session& session, const std::string& name);

/// Makes an interrupt cancel the long work that this program begins: make it before the call that
/// begins the work, and name the operation when the call has answered.
class InterruptibleWork {
 public:
  explicit InterruptibleWork(Session& session)
      : interrupt_([this, &session] {
          const std::string operation =
              begun_.get_future().get();  // the call that begins it has a deadline
          if (!operation.empty()) (void)CancelOperation(session, operation);
        }) {}
  /// `operation`: operations/<id>; empty = there is none.
  void Begun(const std::string& operation) { begun_.set_value(operation); }
  bool interrupted() const { return interrupt_.came(); }

 private:
  std::promise<std::string> begun_;
  OnInterrupt interrupt_;
};

/// Follows an operation to its end: with a progress bar, or a line of JSON for each step. Prints
/// how a failed one ended, like a failed call, and sets the exit code. `doing`: "committing".
/// Returns the operation if it has succeeded.
std::optional<v1::Operation> FollowOperation(Session& session, const v1::Operation& begun,
                                             const std::string& doing);
/// The error of an operation as that of a call.
grpc::Status StatusOf(const v1::Operation& operation);

}  // namespace octavo::cli
