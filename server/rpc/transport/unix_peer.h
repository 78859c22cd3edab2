#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "gpu/base/unique_fd.h"

namespace octavo::rpc {

/// The user at the other end of a connection to the Unix socket, as the kernel knew it when it
/// connected.
struct UnixPeer {
  uid_t uid = 0;
  bool of_group = false;  // of the group of the socket's file
  bool operator==(const UnixPeer&) const = default;
};

/// A connection to the Unix socket, with its user. gRPC names the peer of a call after the number
/// of its descriptor ("fd:23"), and the kernel gives a number out again as soon as it is closed. A
/// call that is still on its way then must not be taken for one of the next user. So a number that
/// was a user's connection becomes that of another user's only a minute later: a new connection
/// that gets such a number is moved to another one.
class NotedUnixPeer {
 public:
  NotedUnixPeer() = default;
  /// Finds the user and moves the descriptor if needed; an empty descriptor if the user cannot be
  /// told or no other number is free. `group`: of the socket's file.
  static std::pair<UniqueFd, NotedUnixPeer> Note(UniqueFd connection, std::optional<gid_t> group);
  NotedUnixPeer(NotedUnixPeer&& other) noexcept
      : number_(std::exchange(other.number_, -1)), noted_(other.noted_) {}
  NotedUnixPeer& operator=(NotedUnixPeer&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(noted_, other.noted_);
    return *this;
  }
  /// The connection has been closed.
  ~NotedUnixPeer();

 private:
  int number_ = -1;
  uint64_t noted_ = 0;
};

/// The user of a call, by gRPC's text for its peer; nothing for other peers.
std::optional<UnixPeer> UnixPeerOf(const std::string& peer);

}  // namespace octavo::rpc
