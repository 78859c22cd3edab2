#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>

namespace octavo::rpc {

/// An end of a TCP connection. IPv4 addresses are in IPv6 form (::ffff:127.0.0.1) for every kind of
/// socket.
struct TcpEnd {
  std::array<uint8_t, 16> address{};
  uint16_t port = 0;
  bool operator==(const TcpEnd&) const = default;
  /// Nothing for other families.
  static std::optional<TcpEnd> Of(const sockaddr_storage& address);
  bool version4() const;
  /// 127.0.0.0/8 or ::1.
  bool loopback() const;
  /// "127.0.0.1:40000", "[::1]:40000".
  std::string text() const;
};

/// The user whose socket is `local`, connected to `remote`, both on this host: found by both full
/// addresses (sockets of other addresses and connections to other servers may share a port). Uses
/// netlink; if that is not available, the tables in /proc/net. Nothing if there is no such
/// connection, or its owner has closed it already.
std::optional<uid_t> UserOfTcpSocket(const TcpEnd& local, const TcpEnd& remote);

/// The two methods. The outer optional of the first is empty if netlink is not available; `table`
/// is /proc/net/tcp or tcp6.
std::optional<std::optional<uid_t>> UserBySockDiag(const TcpEnd& local, const TcpEnd& remote);
std::optional<uid_t> UserInTable(const std::string& table, const TcpEnd& local,
                                 const TcpEnd& remote);

}  // namespace octavo::rpc
