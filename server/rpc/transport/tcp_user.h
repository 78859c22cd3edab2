#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>

namespace octavo::rpc {

/// An end of a TCP connection. Addresses of version 4 as IPv6 has them (::ffff:127.0.0.1), whatever
/// kind of socket they are of.
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

/// The user whose socket is `local`, connected to `remote`, both on this host: asked of the kernel
/// by both full addresses (ports alone are shared by sockets of other addresses, and by connections
/// to other servers). By netlink; where that is not to be had, from the tables in /proc/net.
/// Nothing if there is no such connection, or its owner has closed it already.
std::optional<uid_t> UserOfTcpSocket(const TcpEnd& local, const TcpEnd& remote);

/// The two ways of it. The first is nothing in the outer one if netlink cannot be asked; `table` is
/// /proc/net/tcp or tcp6.
std::optional<std::optional<uid_t>> UserBySockDiag(const TcpEnd& local, const TcpEnd& remote);
std::optional<uid_t> UserInTable(const std::string& table, const TcpEnd& local,
                                 const TcpEnd& remote);

}  // namespace octavo::rpc
