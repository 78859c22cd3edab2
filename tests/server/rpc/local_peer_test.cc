#include "server/rpc/transport/local_peer.h"

#include <arpa/inet.h>
#include <cstring>
#include <fstream>
#include <iostream>
#include <netinet/in.h>
#include <optional>
#include <sstream>
#include <string>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/unique_fd.h"
#include "server/rpc/transport/tcp_user.h"
#include "server/rpc/transport/unix_peer.h"
#include "tests/support/rooms.h"

namespace octavo::rpc {
namespace {

std::pair<sockaddr_storage, socklen_t> AddressOf(const TcpEnd& end, bool version6) {
  sockaddr_storage storage{};
  if (version6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(storage);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(end.port);
    std::memcpy(&six.sin6_addr, end.address.data(), 16);
    return {storage, sizeof six};
  }
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  four.sin_family = AF_INET;
  four.sin_port = htons(end.port);
  std::memcpy(&four.sin_addr, end.address.data() + 12, 4);
  return {storage, sizeof four};
}

TEST(LocalPeerTest, OnlyThisHostIsLocal) {
  for (const char* remote : {"ipv4:192.168.1.7:40000", "ipv4:10.127.0.1:1", "ipv6:[fe80::1]:40000",
                             "ipv6:%5B2001:db8::1%5D:5", "ipv4:127.0.0.1:x", "", "fd:", "fd:99999",
                             "fd:-1", "ipv4:128.0.0.1:7"}) {
    EXPECT_FALSE(LocalPeerOf(remote).local) << remote;
    EXPECT_FALSE(LocalPeerOf(remote).uid.has_value()) << remote;
  }
  for (const char* local :
       {"ipv4:127.0.0.1:1", "ipv4:127.9.9.9:1", "ipv6:[::1]:1", "ipv6:%5B::1%5D:1",
        "ipv6:%5B%3A%3A1%5D:1", "ipv6:[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(LocalPeerOf(local).local) << local;
  }
}

TEST(LocalPeerTest, AUnixSocketTellsItsUser) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd other(ends[1]);
  const auto [one, noted] = NotedUnixPeer::Note(UniqueFd(ends[0]), std::nullopt);
  const auto peer = LocalPeerOf("fd:" + std::to_string(one.get()));
  EXPECT_TRUE(peer.local);
  EXPECT_EQ(peer.uid, ::getuid());
}

/// Makes a loopback socket as `user`, if this process may.
UniqueFd SocketOf(uid_t user, const TcpEnd& at, bool version6, bool listens) {
  const auto before = static_cast<uid_t>(::setfsuid(user));
  UniqueFd fd(::socket(version6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::setfsuid(before);
  const int one = 1, zero = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (version6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, at.version4() ? &zero : &one, sizeof one);
  const auto [address, size] = AddressOf(at, version6);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      (listens && ::listen(fd.get(), 16) != 0))
    return {};
  return fd;
}

TcpEnd EndAt(const char* address, uint16_t port) {
  sockaddr_storage storage{};
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, address, &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, address, &six.sin6_addr), 1) << address;
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
  }
  return TcpEnd::Of(storage).value();
}

std::string TableOf(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A connection: its two ends, and the user of the client's end.
struct Connected {
  TcpEnd from, to;
  uid_t user = 0;
  UniqueFd client, server;
};

class SharedPortsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Searches for a port that is free on all the addresses.
    for (uint16_t i = 0;
         i < 200 && !Listen(static_cast<uint16_t>(20000 + (::getpid() * 7 + i * 13) % 10000)); ++i)
      listeners_.clear();
    ASSERT_FALSE(listeners_.empty());
  }
  bool Listen(uint16_t port) {
    port_ = port;
    const std::tuple<const char*, bool> places[] = {
        {"127.0.0.1", false}, {"127.0.0.2", false}, {"127.0.0.3", true}, {"::1", true}};
    for (const auto& [address, version6] : places) {
      const TcpEnd at = EndAt(address, port);
      UniqueFd fd = SocketOf(::getuid(), at, version6, true);
      if (!fd) return false;
      listeners_.emplace_back(at, std::move(fd));
    }
    return true;
  }
  /// Connects as a user, from an address with the clients' shared port.
  std::optional<Connected> Connect(const char* from, uint16_t port, size_t to, uid_t user,
                                   bool version6) {
    Connected out{.from = EndAt(from, port), .to = listeners_[to].first, .user = user};
    out.client = SocketOf(user, out.from, version6, false);
    if (!out.client) return std::nullopt;
    const auto [address, size] = AddressOf(out.to, version6);
    if (::connect(out.client.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
      return std::nullopt;
    out.server = UniqueFd(::accept4(listeners_[to].second.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return out;
  }

  uint16_t port_ = 0;
  std::vector<std::pair<TcpEnd, UniqueFd>> listeners_;
};

TEST_F(SharedPortsTest, TheUserIsOfBothFullAddresses) {
  const bool root = ::geteuid() == 0;
  const auto user = [&](int n) { return root ? static_cast<uid_t>(40000 + n) : ::getuid(); };
  std::vector<Connected> all;
  uint16_t shared = 0;
  // All clients use one port, on different addresses and to different servers. Each belongs to
  // another user.
  for (uint16_t port = static_cast<uint16_t>(port_ + 1); shared == 0 && port < port_ + 200;
       ++port) {
    all.clear();
    const std::tuple<const char*, size_t, bool> plans[] = {
        {"127.0.0.1", 0, false}, {"127.0.0.1", 1, false}, {"127.0.0.2", 0, false},
        {"127.0.0.2", 1, true},  {"127.0.0.9", 2, false}, {"127.0.0.1", 2, true},
        {"::1", 3, true}};
    int n = 0;
    for (const auto& [from, to, version6] : plans) {
      auto made = Connect(from, port, to, user(n++), version6);
      if (!made.has_value()) break;
      all.push_back(*std::move(made));
    }
    if (all.size() == std::size(plans)) shared = port;
  }
  ASSERT_NE(shared, 0) << "no port was free on all addresses";
  const std::string four = TableOf("/proc/net/tcp"), six = TableOf("/proc/net/tcp6");
  for (const Connected& one : all) {
    SCOPED_TRACE(one.from.text() + " to " + one.to.text());
    EXPECT_EQ(UserOfTcpSocket(one.from, one.to), one.user);
    const auto asked = UserBySockDiag(one.from, one.to);
    if (asked.has_value()) EXPECT_EQ(*asked, one.user);
    const auto in_four = UserInTable(four, one.from, one.to),
               in_six = UserInTable(six, one.from, one.to);
    EXPECT_EQ(in_four.has_value() ? in_four : in_six, one.user);
    // The server's own end, and connections that do not exist.
    EXPECT_EQ(UserOfTcpSocket(one.to, one.from), ::getuid());
    EXPECT_EQ(UserOfTcpSocket(one.from, EndAt("127.0.0.77", port_)), std::nullopt);
    EXPECT_EQ(UserOfTcpSocket(one.to, EndAt("127.0.0.1", 1)), std::nullopt)
        << "a socket that listens is connected to nobody";
  }
  // From gRPC's text for the peer: two connections have the same text but belong to different
  // users.
  const std::string text = "ipv4:" + all[0].from.text();
  {
    NotedPeer first(all[0].server.get());
    EXPECT_EQ(LocalPeerOf(text).uid, all[0].user);
    {
      const NotedPeer second(all[1].server.get());
      EXPECT_EQ(LocalPeerOf(text).uid, root ? kNobodyAtAll : ::getuid());
      const NotedPeer moved = std::move(first);
      EXPECT_EQ(LocalPeerOf(text).uid, root ? kNobodyAtAll : ::getuid());
    }
    EXPECT_EQ(LocalPeerOf(text).uid, std::nullopt);
    const NotedPeer second(all[1].server.get());
    EXPECT_EQ(LocalPeerOf(text).uid, all[1].user);
    EXPECT_EQ(LocalPeerOf("ipv6:[::ffff:" + all[0].from.text().substr(0, 9) +
                          "]:" + std::to_string(shared))
                  .uid,
              all[1].user);
    const NotedPeer by_six(all[6].server.get());
    EXPECT_EQ(LocalPeerOf("ipv6:%5B::1%5D:" + std::to_string(shared)).uid, all[6].user);
  }
  EXPECT_EQ(LocalPeerOf(text).uid, std::nullopt);
  EXPECT_TRUE(LocalPeerOf(text).local);
  if (!root) std::cout << "not root: all sockets are of one user\n";
}

TEST_F(SharedPortsTest, AConnectionThatIsClosedIsOfNobody) {
  auto one = Connect("127.0.0.1", 0, 1, ::getuid(), false);
  ASSERT_TRUE(one.has_value());
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(::getsockname(one->client.get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  const TcpEnd from = TcpEnd::Of(bound).value();
  EXPECT_EQ(UserOfTcpSocket(from, one->to), ::getuid());
  one->client = UniqueFd();
  EXPECT_EQ(UserOfTcpSocket(from, one->to), std::nullopt) << "root has not taken it over";
  const NotedPeer peer(one->server.get());
  EXPECT_EQ(LocalPeerOf("ipv4:" + from.text()).uid, kNobodyAtAll);
}

TEST(LocalPeerTest, TheTableIsReadAsTheKernelWritesIt) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:C350 00000000:0000 0A 00000000:00000000 00:00000000 00000000   111        0 "
      "1 1 0 100 0 0 10 0\n"  // listens
      "   1: 0A00A8C0:C350 0100007F:C351 01 00000000:00000000 00:00000000 00000000   222        0 "
      "2 1 0 100 0 0 10 0\n"  // not loopback
      "   2: 0200007F:C350 0100007F:C351 01 00000000:00000000 00:00000000 00000000   555        0 "
      "8 1 0 100 0 0 10 0\n"  // another address
      "   3: 0100007F:C350 0200007F:C351 01 00000000:00000000 00:00000000 00000000   666        0 "
      "9 1 0 100 0 0 10 0\n"  // to another address
      "   4: 0100007F:C350 0100007F:C351 01 00000000:00000000 00:00000000 00000000  1000        0 "
      "3 1 0 100 0 0 10 0\n"
      "   5: 0100007F:C351 0100007F:C350 01 00000000:00000000 00:00000000 00000000   333        0 "
      "4 1 0 100 0 0 10 0\n"
      "   6: 0100007F:C352 0100007F:C350 04 00000000:00000000 00:00000000 00000000     0        0 "
      "0 1 0 100 0 0 10 0\n"  // closed
      "   nonsense\n";
  const TcpEnd a = EndAt("127.0.0.1", 50000), b = EndAt("127.0.0.1", 50001),
               other = EndAt("127.0.0.2", 50001);
  EXPECT_EQ(UserInTable(table, a, b), 1000u);
  EXPECT_EQ(UserInTable(table, b, a), 333u);
  EXPECT_EQ(UserInTable(table, a, other), 666u);
  EXPECT_EQ(UserInTable(table, EndAt("127.0.0.2", 50000), b), 555u);
  EXPECT_EQ(UserInTable(table, EndAt("127.0.0.1", 50002), a), std::nullopt);
  EXPECT_EQ(UserInTable("", a, b), std::nullopt);
  const std::string six =
      "  sl  local_address                         remote_address                        st "
      "tx_queue rx_queue tr tm->when retrnsmt   uid\n"
      "   0: 00000000000000000000000001000000:C350 00000000000000000000000001000000:C351 01 "
      "00000000:00000000 00:00000000 00000000  1001        0 1\n"
      "   1: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:C351 01 "
      "00000000:00000000 00:00000000 00000000  1002        0 "
      "1\n";
  EXPECT_EQ(UserInTable(six, EndAt("::1", 50000), EndAt("::1", 50001)), 1001u);
  EXPECT_EQ(UserInTable(six, a, b), 1002u);
  EXPECT_EQ(a.text(), "127.0.0.1:50000");
  EXPECT_EQ(EndAt("::ffff:127.0.0.1", 50000), a);
  EXPECT_EQ(EndAt("::1", 7).text(), "[::1]:7");
  EXPECT_TRUE(a.loopback());
  EXPECT_TRUE(EndAt("::1", 7).loopback());
  EXPECT_FALSE(EndAt("::2", 7).loopback());
  EXPECT_FALSE(EndAt("128.0.0.1", 7).loopback());
}

}  // namespace
}  // namespace octavo::rpc
