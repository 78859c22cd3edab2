#include "server/rpc/local_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

#include "gpu/base/unique_fd.h"

namespace octavo::rpc {
namespace {

TEST(LocalPeerTest, OnlyThisHostIsLocal) {
  for (const char* remote : {"ipv4:192.168.1.7:40000", "ipv4:10.127.0.1:1", "ipv6:[fe80::1]:40000", "ipv6:%5B2001:db8::1%5D:5", "ipv4:127.0.0.1:x",
                             "", "fd:", "fd:99999", "fd:-1", "ipv4:128.0.0.1:7"}) {
    EXPECT_FALSE(LocalPeerOf(remote).local) << remote;
    EXPECT_FALSE(LocalPeerOf(remote).uid.has_value()) << remote;
  }
  for (const char* local :
       {"ipv4:127.0.0.1:1", "ipv4:127.9.9.9:1", "ipv6:[::1]:1", "ipv6:%5B::1%5D:1", "ipv6:%5B%3A%3A1%5D:1", "ipv6:[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(LocalPeerOf(local).local) << local;
  }
}

TEST(LocalPeerTest, AUnixSocketTellsItsUser) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  const auto peer = LocalPeerOf("fd:" + std::to_string(one.get()));
  EXPECT_TRUE(peer.local);
  EXPECT_EQ(peer.uid, ::getuid());
}

TEST(LocalPeerTest, ALoopbackConnectionTellsItsUser) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(client.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto peer = LocalPeerOf("ipv4:127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  EXPECT_TRUE(peer.local);
  EXPECT_EQ(peer.uid, ::getuid());
}

TEST(LocalPeerTest, TheTableIsReadAsTheKernelWritesIt) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:C350 00000000:0000 0A 00000000:00000000 00:00000000 00000000   111        0 1 1 0 100 0 0 10 0\n"  // listens
      "   1: 0A00A8C0:C350 0100007F:C351 01 00000000:00000000 00:00000000 00000000   222        0 2 1 0 100 0 0 10 0\n"  // not loopback
      "   2: 0100007F:C350 0100007F:C351 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 100 0 0 10 0\n"
      "   3: 0100007F:C351 0100007F:C350 01 00000000:00000000 00:00000000 00000000   333        0 4 1 0 100 0 0 10 0\n"
      "   nonsense\n";
  EXPECT_EQ(UserOfSocket(table, 50000), 1000u);
  EXPECT_EQ(UserOfSocket(table, 50001), 333u);
  EXPECT_EQ(UserOfSocket(table, 50002), std::nullopt);
  EXPECT_EQ(UserOfSocket("", 50000), std::nullopt);
  const std::string six =
      "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
      "   0: 00000000000000000000000001000000:C350 00000000000000000000000001000000:C351 01 00000000:00000000 00:00000000 00000000  1001        0 1\n"
      "   1: 0000000000000000FFFF00000100007F:C352 0000000000000000FFFF00000100007F:C351 01 00000000:00000000 00:00000000 00000000  1002        0 "
      "1\n";
  EXPECT_EQ(UserOfSocket(six, 50000), 1001u);
  EXPECT_EQ(UserOfSocket(six, 50002), 1002u);
}

}  // namespace
}  // namespace octavo::rpc
