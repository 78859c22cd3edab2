#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

// Named points at which tests make the program fail, armed by the environment of the process
// (OCTAVO_FAILPOINT) or by a test in the same process; no client can reach them. A point that is
// not armed costs one relaxed load and a branch.
//
// The specification is "<name>:<action>[:<count>]": the point fails when it is passed for the
// count-th time (default: the first), once. The count "*" is every time, until it is armed anew.
//   kill               the process gets SIGKILL
//   errno=28           Failpoint returns 28; the caller fails as if the system had said so
//   throw=bad_alloc    Failpoint throws std::bad_alloc; also system_error (EAGAIN, as std::thread
//                      does when no thread can start), runtime_error
//   call               the function that the test gave ArmFailpoint runs; nothing fails
//   list               nothing fails: the names of points that are passed are collected
//                      (PassedFailpoints)
// The name "*" is any point that a thread passes while it is in a FailpointScope: those of the
// handler of a call, in the order it passes them.
namespace octavo::inline gpu {

namespace failpoint_internal {
extern std::atomic<bool> armed;
int Passed(const char* name);
}  // namespace failpoint_internal

/// The errno to fail with, or 0.
inline int Failpoint(const char* name) {
  if (!failpoint_internal::armed.load(std::memory_order_relaxed)) [[likely]]
    return 0;
  return failpoint_internal::Passed(name);
}
/// Arms a point of this process ("" = none), as the environment would. `call`: for the action
/// "call"; runs each time the point fails, on the thread that passes it, which holds whatever locks
/// it holds there.
void ArmFailpoint(const std::string& spec, std::function<void()> call = {});
/// Whether the armed point may still fail; lets a caller compose a name only while a failpoint
/// is armed.
inline bool FailpointArmed() { return failpoint_internal::armed.load(std::memory_order_relaxed); }
/// The names that "list" has collected since it was armed.
std::vector<std::string> PassedFailpoints();

/// This thread handles a call: "*" counts the points that it passes.
class FailpointScope {
 public:
  FailpointScope();
  ~FailpointScope();
  FailpointScope(const FailpointScope&) = delete;
  FailpointScope& operator=(const FailpointScope&) = delete;
};

}  // namespace octavo::inline gpu
