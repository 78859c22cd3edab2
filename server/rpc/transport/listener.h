#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "server/rpc/transport/local_peer.h"
#include "server/rpc/transport/unix_peer.h"

namespace octavo::rpc {

/// Accepts connections, TCP and Unix, and hands them to the server. gRPC's own listener is not
/// used, because it stops for good when the process runs out of descriptors, and offers no means to
/// cut a peer.
///
/// Descriptors. The listener accepts connections only while a reserve of descriptors is free, so
/// that the daemon's own work (commits, files of scans, cameras) finds one even when clients have
/// taken all that they may. Meanwhile peers wait in the kernel's queue; the listener accepts them
/// when there is room again. TCP leaves a part of the room to the Unix socket: whoever can connect
/// by TCP, even without a login, does not keep those out who administer the server. No other host
/// takes more than half of what TCP may have.
///
/// Duplicates. Of each connection the listener keeps a duplicate. A peer that has stopped reading
/// would otherwise hold the server's shutdown for ever; cutting the duplicate ends it. A duplicate
/// keeps the socket open, so the listener must close it when gRPC closes its own descriptor: from
/// then on that number is closed or another file, as the inode shows. (The readable data show
/// nothing: the garbage of a peer stays unread.)
class Listener {
 public:
  struct Counts {
    int64_t open = 0;      // connections
    int64_t accepted = 0;  // since the start
    int64_t pauses = 0;    // times that accepting paused for lack of descriptors
    int64_t refused = 0;   // closed at once: their host has as many as it may
  };
  /// `spare`: descriptors that connections never take; 0 = a quarter of the process' limit, at most
  /// 1024. `stalled_seconds`: TCP connections end when the peer reads nothing for
  /// this long.
  Listener(int spare, double stalled_seconds) : spare_(spare), stalled_seconds_(stalled_seconds) {}
  ~Listener();
  /// Listens on "host:port", on all addresses of that name. Adds what clients can use to
  /// addresses(): port 0 is replaced.
  absl::Status AddTcp(const std::string& address);
  /// Replaces a socket file on which no server answers; AlreadyExists if one does. Mode 0660.
  absl::Status AddUnix(const std::string& path);
  const std::vector<std::string>& addresses() const { return addresses_; }

  /// Begins to accept. `hand_over` takes the descriptor.
  void Start(std::function<void(UniqueFd connection, bool is_unix)> hand_over);
  /// No more connections.
  void Stop();
  /// Cuts every connection.
  void CutAll();
  /// Cuts the Unix connection that gRPC calls `peer` ("fd:23"); others end by themselves
  /// (TCP_USER_TIMEOUT).
  void Cut(const std::string& peer);
  /// TCP connections that are accepted from now on count as of this generation (of certificates).
  void SetGeneration(int64_t generation) { generation_ = generation; }
  /// Cuts the TCP connections of generations before this one; returns how many there were.
  int64_t CutTcpBefore(int64_t generation);
  /// `told` gets the address of each TCP connection that has ended within 30 s after it began. Call
  /// it before Start.
  void TellShortLived(std::function<void(const std::string& address)> told) {
    short_lived_ = std::move(told);
  }
  Counts Count();

 private:
  struct Door {
    UniqueFd fd;
    bool is_unix = false;
  };
  struct Connection {
    int theirs = -1;  // gRPC's own descriptor
    ino_t inode = 0;
    UniqueFd duplicate;
    bool is_unix = false;
    std::chrono::steady_clock::time_point began;
    int64_t generation = 0;   // of TCP
    std::string address;      // of TCP, if short-lived connections are told
    std::string host;         // of TCP from another host
    NotedPeer peer;           // of TCP
    NotedUnixPeer unix_peer;  // of the Unix socket
  };
  void Run(const std::stop_token& stop);
  void Accept(const Door& door);
  /// Whether a host has as many connections as it may; says so when that begins.
  bool HasEnough(const std::string& host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Forgets the connections that gRPC has closed.
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Connections of each kind that may be accepted before the next check; 0 = none now.
  struct Allowance {
    int64_t tcp = 0, by_socket = 0;
  };
  Allowance Allow();

  const int spare_;
  const double stalled_seconds_;
  std::vector<Door> doors_;
  std::vector<std::string> addresses_;
  std::string unix_path_;
  std::function<void(UniqueFd, bool)> hand_over_;
  std::function<void(const std::string&)> short_lived_;
  std::atomic<int64_t> generation_{0};
  Mutex mutex_;
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  int64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0, pauses_ ABSL_GUARDED_BY(mutex_) = 0,
                    refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string full_host_ ABSL_GUARDED_BY(mutex_);  // the last one that was told
  std::jthread thread_;
};

}  // namespace octavo::rpc
