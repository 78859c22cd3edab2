#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/engine/engine.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/principal_resolver.h"
#include "server/security/audit_log.h"
#include "server/security/owner.h"

namespace octavo::rpc {

struct RpcConfig {
  std::vector<std::string> tcp = {"127.0.0.1:50051"};  // host:port; port 0 = any free port
  std::string unix_path;                               // empty = no Unix socket
  int64_t memory_bytes = 512 << 20;                    // for incoming requests
  int64_t picture_bytes = int64_t{1} << 30;  // for pictures of volumes, until they are sent
  // Descriptors that connections leave free; 0 = a quarter of the process' limit, at most 1024.
  int spare_descriptors = 0;
  // A peer that reads nothing for this long is disconnected; a stream without a first message ends.
  double stalled_seconds = 30;
  int max_concurrent_streams = 4096;  // per connection
  TrustConfig trust;
  security::AuditLog* audit = nullptr;  // null = none; must outlive the server
};

/// What has become of a scan of an earlier daemon that this one was to begin again.
struct ResumeOutcome {
  std::string was,
      now;  // scans/<id> of the earlier daemon and of this one; `now` empty: not resumed
  security::Owner owner;
  absl::Status why;   // why it is not resumed
  bool kept = false;  // the next start tries again
};
/// The owner of a scan with the role that it has now, or why it may not submit scans any more.
using OwnerNow = std::function<absl::StatusOr<security::Owner>(const security::Owner&)>;
/// Begins the scans again that earlier daemons left (ON_RESTART_RESUME; scan_submission.cc). To be
/// called once, before any client can ask. Waits for disks and cameras.
std::vector<ResumeOutcome> ResumeScans(engine::Engine* engine, const OwnerNow& owner_now);

/// The gRPC front end: services, health, reflection, listeners.
class RpcServer {
 public:
  /// Listens and serves. FailedPrecondition if an address is not available.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcConfig& config,
                                                          engine::Engine* engine, ServerInfo info);
  virtual ~RpcServer() = default;
  /// Addresses that clients can use: "127.0.0.1:41234", "unix:/run/octavo.sock".
  virtual std::vector<std::string> addresses() const = 0;
  /// The state in the health service, overall and for each service.
  virtual void SetServing(bool serving) = 0;
  /// Ends all calls, by force if they do not end within `grace`. Returns within a second after
  /// that.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace octavo::rpc
