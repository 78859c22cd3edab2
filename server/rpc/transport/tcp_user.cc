#include "server/rpc/transport/tcp_user.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "gpu/base/unique_fd.h"

namespace octavo::rpc {
namespace {

constexpr int kEstablished = 1,
              kCloseWait = 8;  // TCP states in which the owner still has the socket

/// Positions of the four words of an address in the kernel's form; version 4 puts the last one
/// first.
void PutAddress(const TcpEnd& end, bool version4, uint32_t words[4]) {
  std::memset(words, 0, 16);
  if (version4) {
    std::memcpy(words, end.address.data() + 12, 4);
  } else {
    std::memcpy(words, end.address.data(), 16);
  }
}

TcpEnd EndFrom(const uint32_t words[4], uint16_t port_of_network, int family) {
  sockaddr_storage storage{};
  storage.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    auto& at = reinterpret_cast<sockaddr_in&>(storage);
    at.sin_port = port_of_network;
    std::memcpy(&at.sin_addr, words, 4);
  } else {
    auto& at = reinterpret_cast<sockaddr_in6&>(storage);
    at.sin6_port = port_of_network;
    std::memcpy(&at.sin6_addr, words, 16);
  }
  return TcpEnd::Of(storage).value_or(TcpEnd{});
}

/// In the form of the tables: words in the machine's byte order, in hexadecimal digits.
std::string InTable(const TcpEnd& end, bool version4) {
  uint32_t words[4];
  PutAddress(end, version4, words);
  std::string out;
  for (int i = 0; i < (version4 ? 1 : 4); ++i) absl::StrAppendFormat(&out, "%08X", words[i]);
  return absl::StrFormat("%s:%04X", out, end.port);
}

std::string TextOfFile(const char* path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::optional<TcpEnd> TcpEnd::Of(const sockaddr_storage& address) {
  TcpEnd end;
  if (address.ss_family == AF_INET) {
    const auto& at = reinterpret_cast<const sockaddr_in&>(address);
    end.port = ntohs(at.sin_port);
    end.address[10] = end.address[11] = 0xFF;
    std::memcpy(end.address.data() + 12, &at.sin_addr, 4);
    return end;
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const auto& at = reinterpret_cast<const sockaddr_in6&>(address);
  end.port = ntohs(at.sin6_port);
  std::memcpy(end.address.data(), &at.sin6_addr, 16);
  return end;
}

bool TcpEnd::version4() const {
  return std::all_of(address.begin(), address.begin() + 10, [](uint8_t b) { return b == 0; }) &&
         address[10] == 0xFF && address[11] == 0xFF;
}

bool TcpEnd::loopback() const {
  if (version4()) return address[12] == 127;
  return std::all_of(address.begin(), address.begin() + 15, [](uint8_t b) { return b == 0; }) &&
         address[15] == 1;
}

std::string TcpEnd::text() const {
  char name[INET6_ADDRSTRLEN] = "";
  if (version4()) {
    ::inet_ntop(AF_INET, address.data() + 12, name, sizeof name);
    return absl::StrCat(name, ":", port);
  }
  ::inet_ntop(AF_INET6, address.data(), name, sizeof name);
  return absl::StrCat("[", name, "]:", port);
}

std::optional<std::optional<uid_t>> UserBySockDiag(const TcpEnd& local, const TcpEnd& remote) {
  const UniqueFd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink) return std::nullopt;
  const timeval patience{.tv_sec = 1, .tv_usec = 0};  // the kernel answers at once, or never
  ::setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } request{};
  const bool four = local.version4() && remote.version4();
  request.head = {.nlmsg_len = sizeof request,
                  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                  .nlmsg_flags = NLM_F_REQUEST,
                  .nlmsg_seq = 1,
                  .nlmsg_pid = 0};
  request.body.sdiag_family = four ? AF_INET : AF_INET6;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0u;
  request.body.id.idiag_sport = htons(local.port);
  request.body.id.idiag_dport = htons(remote.port);
  PutAddress(local, four, request.body.id.idiag_src);
  PutAddress(remote, four, request.body.id.idiag_dst);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(netlink.get(), &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request))
    return std::nullopt;
  alignas(nlmsghdr) char answer[8192];
  ssize_t got;
  do {
    got = ::recv(netlink.get(), answer, sizeof answer, 0);
  } while (got < 0 && errno == EINTR);
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer);
  if (got < static_cast<ssize_t>(sizeof *head) || head->nlmsg_len > static_cast<size_t>(got))
    return std::nullopt;
  if (head->nlmsg_type == NLMSG_ERROR) {
    if (head->nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) return std::nullopt;
    // ENOENT: there is no such socket; also the answer of a kernel without the diagnosis module for
    // TCP, so consult the tables.
    return std::nullopt;
  }
  if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      head->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
    return std::nullopt;
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(head));
  // If no socket is connected, the kernel also finds one that listens there.
  const bool same =
      EndFrom(found->id.idiag_src, found->id.idiag_sport, found->idiag_family) == local &&
      EndFrom(found->id.idiag_dst, found->id.idiag_dport, found->idiag_family) == remote;
  const bool held = (found->idiag_state == kEstablished || found->idiag_state == kCloseWait) &&
                    found->idiag_inode != 0;
  return same && held ? std::optional<uid_t>(found->idiag_uid) : std::optional<uid_t>();
}

std::optional<uid_t> UserInTable(const std::string& table, const TcpEnd& local,
                                 const TcpEnd& remote) {
  // IPv6 sockets that are connected to IPv4 addresses are in the other table.
  const std::pair<std::string, std::string> wanted[] = {
      {InTable(local, false), InTable(remote, false)},
      {InTable(local, true), InTable(remote, true)}};
  const bool four = local.version4() && remote.version4();
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    // sl local_address rem_address st tx:rx tr:when retransmits uid timeout inode ...
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint32_t state = 0, uid = 0;
    uint64_t inode = 0;
    if (words.size() < 10 || !absl::SimpleHexAtoi(words[3], &state) ||
        !absl::SimpleAtoi(words[7], &uid) || !absl::SimpleAtoi(words[9], &inode))
      continue;
    const bool same = (words[1] == wanted[0].first && words[2] == wanted[0].second) ||
                      (four && words[1] == wanted[1].first && words[2] == wanted[1].second);
    if (same && (state == kEstablished || state == kCloseWait) && inode != 0)
      return static_cast<uid_t>(uid);
  }
  return std::nullopt;
}

std::optional<uid_t> UserOfTcpSocket(const TcpEnd& local, const TcpEnd& remote) {
  if (const auto asked = UserBySockDiag(local, remote); asked.has_value()) return *asked;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    if (const auto user = UserInTable(TextOfFile(table), local, remote); user.has_value())
      return user;
  }
  return std::nullopt;
}

}  // namespace octavo::rpc
