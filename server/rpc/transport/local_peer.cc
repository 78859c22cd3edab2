#include "server/rpc/transport/local_peer.h"

#include <algorithm>
#include <map>
#include <sys/socket.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "gpu/base/mutex.h"
#include "server/rpc/transport/tcp_user.h"
#include "server/rpc/transport/unix_peer.h"

namespace octavo::rpc {
namespace {

/// The users of the connections that are open, by the text of the client's end.
struct NotedUsers {
  Mutex mutex;
  std::map<std::string, std::vector<uid_t>> by_text ABSL_GUARDED_BY(mutex);
};
NotedUsers& Noted() {
  static auto& noted = *new NotedUsers;
  return noted;
}

}  // namespace

NotedPeer::NotedPeer(int connection) {
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  if (::getsockname(connection, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      ::getpeername(connection, reinterpret_cast<sockaddr*>(&there), &there_size) != 0)
    return;
  const auto server = TcpEnd::Of(here), client = TcpEnd::Of(there);
  if (!server.has_value() || !client.has_value() || !client->loopback()) return;
  text_ = client->text();
  user_ = UserOfTcpSocket(*client, *server).value_or(kNobodyAtAll);
  MutexLock lock(Noted().mutex);
  Noted().by_text[text_].push_back(user_);
}

NotedPeer::~NotedPeer() {
  if (text_.empty()) return;
  MutexLock lock(Noted().mutex);
  const auto it = Noted().by_text.find(text_);
  it->second.erase(std::find(it->second.begin(), it->second.end(), user_));
  if (it->second.empty()) Noted().by_text.erase(it);
}

exports::ExportPeer LocalPeerOf(const std::string& peer) {
  exports::ExportPeer out;
  std::string text = absl::StrReplaceAll(
      peer, {{"%5B", "["}, {"%5D", "]"}, {"%3A", ":"}, {"%5b", "["}, {"%5d", "]"}, {"%3a", ":"}});
  if (absl::StartsWith(text, "fd:")) {
    const auto user = UnixPeerOf(text);
    out.local = user.has_value();
    if (out.local) out.uid = user->uid;
    return out;
  }
  const bool mapped = absl::StartsWith(text, "ipv6:[::ffff:127.");
  if (!mapped && !absl::StartsWith(text, "ipv6:[::1]:") && !absl::StartsWith(text, "ipv4:127."))
    return out;
  int port = 0;
  out.local = absl::SimpleAtoi(text.substr(text.rfind(':') + 1), &port) && port > 0;
  if (!out.local) return out;
  text = text.substr(5);
  if (mapped) text = absl::StrReplaceAll(text, {{"[::ffff:", ""}, {"]", ""}});
  MutexLock lock(Noted().mutex);
  const auto it = Noted().by_text.find(text);
  if (it == Noted().by_text.end()) return out;
  const std::vector<uid_t>& users = it->second;
  out.uid = std::all_of(users.begin(), users.end(), [&](uid_t user) { return user == users[0]; })
                ? users[0]
                : kNobodyAtAll;
  return out;
}

}  // namespace octavo::rpc
