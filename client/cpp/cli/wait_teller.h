#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// While it lives, it writes to the error stream what a scan or a job waits for, whenever no output
/// came from it for two seconds. `name`: scans/..., jobs/..., or empty = any scan.
class WaitTeller {
 public:
  WaitTeller(const Session& session, std::string name);
  ~WaitTeller();
  WaitTeller(const WaitTeller&) = delete;
  WaitTeller& operator=(const WaitTeller&) = delete;

  /// Output has arrived.
  void Came();

 private:
  void Run(const std::stop_token& stop);
  // Empty: there is no problem that a user could solve, or the server does not answer, which the
  // subscription itself reports.
  std::string Reason() const;
  std::string ReasonOfScan() const;
  std::string ReasonOfJob() const;
  std::string ReasonOfAnyScan() const;

  const Session& session_;
  const std::string name_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool came_ = false;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace octavo::cli
