#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// A session of this program at the server, kept alive by a separate thread. If the program is
/// killed, the server notices and treats the session's jobs and volumes as JobSpec.orphan says.
class OwnSession {
 public:
  /// A refusal is printed and sets the exit code; secret() is empty then.
  OwnSession(Session& session, const std::string& client);
  ~OwnSession();
  OwnSession(const OwnSession&) = delete;
  OwnSession& operator=(const OwnSession&) = delete;

  const std::string& secret() const { return secret_; }

 private:
  void KeepAlive(const std::stop_token& stop, double seconds);

  Session& session_;
  std::string secret_;
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace octavo::cli
