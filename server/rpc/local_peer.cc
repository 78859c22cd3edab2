#include "server/rpc/local_peer.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <sys/socket.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace octavo::rpc {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::optional<uid_t> UserOfSocket(const std::string& table, int port) {
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  for (size_t i = 1; i < lines.size(); ++i) {  // behind the headings
    // sl local_address rem_address st tx:rx tr:when retransmits uid ...
    const std::vector<std::string> words = absl::StrSplit(lines[i], ' ', absl::SkipEmpty());
    if (words.size() < 8) continue;
    const std::vector<std::string> local = absl::StrSplit(words[1], ':');
    uint32_t at = 0, uid = 0;
    if (local.size() != 2 || !absl::SimpleHexAtoi(local[1], &at) || !absl::SimpleAtoi(words[7], &uid)) continue;
    // 127.0.0.0/8 in the byte order of the machine, ::1, or 127.0.0.0/8 mapped into IPv6.
    const bool loopback = local[0].size() == 8 ? absl::EndsWith(local[0], "7F")
                                               : local[0] == "00000000000000000000000001000000" ||
                                                     (absl::StartsWith(local[0], "0000000000000000FFFF0000") && absl::EndsWith(local[0], "7F"));
    if (loopback && at == static_cast<uint32_t>(port) && words[3] == "01") return static_cast<uid_t>(uid);  // established
  }
  return std::nullopt;
}

engine::ExportPeer LocalPeerOf(const std::string& peer) {
  engine::ExportPeer out;
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%3A", ":"}, {"%5b", "["}, {"%5d", "]"}, {"%3a", ":"}});
  if (absl::StartsWith(text, "fd:")) {
    int fd = -1;
    ucred credentials{};
    socklen_t size = sizeof credentials;
    out.local = absl::SimpleAtoi(text.substr(3), &fd) && ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
    if (out.local) out.uid = credentials.uid;
    return out;
  }
  if (absl::StartsWith(text, "unix:")) {
    out.local = true;
    return out;
  }
  const bool mapped = absl::StartsWith(text, "ipv6:[::ffff:127.");
  const bool six = absl::StartsWith(text, "ipv6:[::1]:") || mapped;
  if (!six && !absl::StartsWith(text, "ipv4:127.")) return out;
  int port = 0;
  out.local = absl::SimpleAtoi(text.substr(text.rfind(':') + 1), &port) && port > 0;
  if (!out.local) return out;
  // A client may use a socket of either family for an address of version 4.
  out.uid = UserOfSocket(ReadAll(six && !mapped ? "/proc/net/tcp6" : "/proc/net/tcp"), port);
  if (!out.uid.has_value()) out.uid = UserOfSocket(ReadAll("/proc/net/tcp6"), port);
  return out;
}

}  // namespace octavo::rpc
