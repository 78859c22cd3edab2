#include "server/rpc/transport/unix_peer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/socket.h>
#include <unordered_map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "gpu/base/mutex.h"

namespace octavo::rpc {
namespace {

using Steady = std::chrono::steady_clock;

// A call begins within milliseconds after its bytes have come, however busy the host is.
constexpr std::chrono::seconds kBeforeAnotherUser(60);

struct Number {
  UnixPeer peer;
  uint64_t noted = 0;
  std::optional<Steady::time_point> closed;
};

struct Numbers {
  Mutex mutex;
  std::unordered_map<int, Number> all ABSL_GUARDED_BY(mutex);
  uint64_t next ABSL_GUARDED_BY(mutex) = 1;
};
Numbers& AllNumbers() {
  static auto& numbers = *new Numbers;
  return numbers;
}

std::optional<UnixPeer> AskKernel(int connection, std::optional<gid_t> group) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return std::nullopt;
  UnixPeer peer{.uid = credentials.uid, .of_group = group == credentials.gid};
  if (!group.has_value() || peer.of_group) return peer;
  std::vector<gid_t> groups(64);
  for (;;) {
    size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) break;
    if (errno != ERANGE) return peer;  // an old kernel: not known to be of the group
    groups.resize(std::max(2 * groups.size(), static_cast<size_t>(size) / sizeof(gid_t)));
  }
  groups.resize(size / sizeof(gid_t));
  peer.of_group = std::find(groups.begin(), groups.end(), *group) != groups.end();
  return peer;
}

}  // namespace

std::pair<UniqueFd, NotedUnixPeer> NotedUnixPeer::Note(UniqueFd connection,
                                                       std::optional<gid_t> group) {
  const auto peer = AskKernel(connection.get(), group);
  if (!peer.has_value()) return {};
  Numbers& numbers = AllNumbers();
  while (connection) {
    {
      MutexLock lock(numbers.mutex);
      const auto now = Steady::now();
      const auto it = numbers.all.find(connection.get());
      // The number is this connection's, so one that was not known to be closed is.
      if (it != numbers.all.end() && !it->second.closed.has_value()) it->second.closed = now;
      if (it == numbers.all.end() || it->second.peer == *peer ||
          now - *it->second.closed >= kBeforeAnotherUser) {
        NotedUnixPeer noted;
        noted.number_ = connection.get();
        noted.noted_ = numbers.next++;
        numbers.all[connection.get()] = {
            .peer = *peer, .noted = noted.noted_, .closed = std::nullopt};
        return {std::move(connection), std::move(noted)};
      }
    }
    UniqueFd moved(::fcntl(connection.get(), F_DUPFD_CLOEXEC, connection.get() + 1));
    connection = std::move(moved);
  }
  return {};
}

NotedUnixPeer::~NotedUnixPeer() {
  if (number_ < 0) return;
  MutexLock lock(AllNumbers().mutex);
  const auto it = AllNumbers().all.find(number_);
  if (it != AllNumbers().all.end() && it->second.noted == noted_ && !it->second.closed.has_value())
    it->second.closed = Steady::now();
}

std::optional<UnixPeer> UnixPeerOf(const std::string& peer) {
  int number = -1;
  absl::string_view text = peer;
  if (!absl::ConsumePrefix(&text, "fd:") || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  MutexLock lock(AllNumbers().mutex);
  const auto it = AllNumbers().all.find(number);
  if (it == AllNumbers().all.end()) return std::nullopt;
  return it->second.peer;
}

}  // namespace octavo::rpc
