#pragma once

// For tests of the client library: a daemon in this process, and a check of the exception that a
// call throws.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

#include "client/cpp/include/octavo/octavo.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/daemon.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::client::testing {

/// Starts a daemon on the host backend, with ports that the system chooses and with its files in
/// `folder`; `change` may set more.
inline absl::StatusOr<std::unique_ptr<Daemon>> StartDaemon(
    const octavo::testing::TempFolder& folder,
    const std::function<void(Config&)>& change = nullptr) {
  SetUpLog(LogLevel::kWarning, false);
  Config config;
  config.backend = "host";
  config.listen_tcp = {"127.0.0.1:0"};
  config.listen_loopback_role = "operator";  // as octavod has it without a configuration file
  config.metrics_listen = "none";
  config.state_dir = folder / "state";
  config.storage_roots = {folder / "data"};
  config.memory_bytes = 256 << 20;
  config.frame_pool_bytes = 64 << 20;
  if (change) change(config);
  std::filesystem::create_directories(config.storage_roots[0]);
  OCTAVO_RETURN_IF_ERROR(Finalise(&config));
  return Daemon::Start(config);
}

/// Descriptors that this process has open.
inline size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

/// Waits for a condition that other threads make true soon.
template <class Done>
bool Until(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// The exception that `call` throws.
template <class Call>
Error Thrown(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Code::kUnknown, "");
}

}  // namespace octavo::client::testing
