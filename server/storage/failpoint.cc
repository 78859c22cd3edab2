#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gpu/base/mutex.h"
#include "server/storage/commit_store.h"

namespace octavo::storage {
namespace {

// Beside the points of a commit: journal_cut (journal.cc), where a refused line cannot be taken back; measured_output (engine/measure.cc) and
// published_frame (engine/scan_session_retire.cc), where a byte becomes wrong so that tests see that it is noticed.
struct Armed {
  Mutex mutex;
  std::string name ABSL_GUARDED_BY(mutex);
  int error ABSL_GUARDED_BY(mutex) = 0;  // 0 = kill
  int countdown ABSL_GUARDED_BY(mutex) = 1;
};
std::atomic<bool> g_armed{false};
Armed& Point() {
  static Armed& point = *new Armed;
  return point;
}

}  // namespace

void ArmFailpoint(const std::string& spec) {
  Armed& point = Point();
  MutexLock lock(point.mutex);
  const std::vector<std::string> parts = absl::StrSplit(spec, ':');
  g_armed = parts.size() >= 2;
  if (parts.size() < 2) return;
  point.name = parts[0];
  point.error = 0;
  point.countdown = 1;
  absl::string_view action = parts[1];
  if (absl::ConsumePrefix(&action, "errno=")) (void)absl::SimpleAtoi(action, &point.error);
  if (parts.size() > 2) (void)absl::SimpleAtoi(parts[2], &point.countdown);
}

int Failpoint(const char* name) {
  static const bool from_environment = [] {
    if (const char* spec = std::getenv("OCTAVO_FAILPOINT")) ArmFailpoint(spec);
    return true;
  }();
  (void)from_environment;
  if (!g_armed.load(std::memory_order_relaxed)) return 0;
  Armed& point = Point();
  MutexLock lock(point.mutex);
  if (point.name != name || --point.countdown > 0) return 0;
  g_armed = false;  // once
  if (point.error == 0) std::raise(SIGKILL);
  return point.error;
}

}  // namespace octavo::storage
