#pragma once

#include <string>
#include <utility>

#include "server/exports/export_store.h"

namespace octavo::rpc {

/// Whether a call comes from the same host, and from which user, by gRPC's text for its peer:
/// "fd:23" (the Unix socket: the user as a NotedUnixPeer found it), "unix:...",
/// "ipv4:127.0.0.1:40000", "ipv6:[::1]:40000" or with its brackets and colons percent-coded (the
/// user as a NotedPeer found it).
exports::ExportPeer LocalPeerOf(const std::string& peer);

/// Finds the user at the other end of a TCP connection over loopback, once, and keeps it by gRPC's
/// text for the peer while the object lives. The texts name only the client's end: if two
/// connections to different addresses of the server share it but belong to different users, calls
/// of both have no user.
class NotedPeer {
 public:
  NotedPeer() = default;
  /// `connection`: an accepted socket. Only TCP over loopback is recorded.
  explicit NotedPeer(int connection);
  NotedPeer(NotedPeer&& other) noexcept
      : text_(std::exchange(other.text_, "")), user_(other.user_) {}
  NotedPeer& operator=(NotedPeer&& other) noexcept {
    std::swap(text_, other.text_);
    std::swap(user_, other.user_);
    return *this;
  }
  ~NotedPeer();

 private:
  std::string text_;  // "127.0.0.1:40000"; empty: no record
  uid_t user_ = 0;
};

/// A user id that no user has; tickets issued to it cannot be redeemed.
inline constexpr auto kNobodyAtAll = static_cast<uid_t>(-1);

}  // namespace octavo::rpc
