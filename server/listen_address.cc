#include "server/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"

namespace octavo {
namespace {

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

std::string TextOf(const addrinfo& found) {
  char text[NI_MAXHOST] = "?";
  (void)::getnameinfo(found.ai_addr, found.ai_addrlen, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST);
  return text;
}

}  // namespace

std::string HostOf(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return host;
}

absl::Status CheckLoopback(const std::string& address) {
  const std::string host = HostOf(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::NotFoundError(
        absl::StrCat("'", host, "' does not resolve: ", ::gai_strerror(error)));
  }
  absl::Status status;
  for (const addrinfo* one = found; one != nullptr && status.ok(); one = one->ai_next) {
    if (IsLoopback(*one->ai_addr)) continue;
    const std::string text = TextOf(*one);
    status = absl::FailedPreconditionError(absl::StrCat(
        "other hosts can reach ", address, text == host ? "" : absl::StrCat(" (", text, ")")));
  }
  ::freeaddrinfo(found);
  return status;
}

}  // namespace octavo
