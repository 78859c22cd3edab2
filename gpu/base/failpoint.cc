#include "gpu/base/failpoint.h"

#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gpu/base/mutex.h"

namespace octavo::inline gpu {
namespace failpoint_internal {

std::atomic<bool> armed{false};

}  // namespace failpoint_internal

namespace {

struct Point {
  Mutex mutex;
  std::string name ABSL_GUARDED_BY(mutex), action ABSL_GUARDED_BY(mutex);
  int countdown ABSL_GUARDED_BY(mutex) = 1;
  bool always ABSL_GUARDED_BY(mutex) = false;
  std::function<void()> call ABSL_GUARDED_BY(mutex);
  std::vector<std::string> passed ABSL_GUARDED_BY(mutex);
};
Point& ThePoint() {
  static Point& point = *new Point;
  return point;
}
thread_local int scopes = 0;

const bool kFromEnvironment = [] {
  if (const char* spec = std::getenv("OCTAVO_FAILPOINT")) ArmFailpoint(spec);
  return true;
}();

}  // namespace

void ArmFailpoint(const std::string& spec, std::function<void()> call) {
  Point& point = ThePoint();
  MutexLock lock(point.mutex);
  const std::vector<std::string> parts = absl::StrSplit(spec, ':');
  point.passed.clear();
  point.countdown = 1;
  point.call = std::move(call);
  if (parts.size() >= 2) {
    point.name = parts[0];
    point.action = parts[1];
    point.always = parts.size() > 2 && parts[2] == "*";
    if (parts.size() > 2 && !point.always) (void)absl::SimpleAtoi(parts[2], &point.countdown);
  }
  failpoint_internal::armed = parts.size() >= 2;
}

std::vector<std::string> PassedFailpoints() {
  Point& point = ThePoint();
  MutexLock lock(point.mutex);
  return point.passed;
}

int failpoint_internal::Passed(const char* name) {
  std::string action;
  std::function<void()> call;
  {
    Point& point = ThePoint();
    MutexLock lock(point.mutex);
    if (!armed || (point.name == "*" ? scopes == 0 : point.name != name)) return 0;
    if (point.action == "list") {
      point.passed.emplace_back(name);
      return 0;
    }
    if (!point.always) {
      if (--point.countdown > 0) return 0;
      armed = false;
    }
    action = point.action;
    call = point.call;
  }
  if (action == "call") {
    if (call) call();
    return 0;
  }
  absl::string_view what = action;
  if (absl::ConsumePrefix(&what, "throw=")) {
    if (what == "bad_alloc") throw std::bad_alloc();
    if (what == "system_error") {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again),
                              absl::StrCat("failpoint ", name));
    }
    throw std::runtime_error(absl::StrCat("failpoint ", name));
  }
  int error = 0;
  if (absl::ConsumePrefix(&what, "errno=")) (void)absl::SimpleAtoi(what, &error);
  if (error == 0) std::raise(SIGKILL);
  return error;
}

FailpointScope::FailpointScope() { ++scopes; }
FailpointScope::~FailpointScope() { --scopes; }

}  // namespace octavo::inline gpu
