#include "server/systemd.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/unique_fd.h"

namespace octavo {
namespace {

const char* NotifySocket() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  return path == nullptr || std::strlen(path) >= sizeof(sockaddr_un::sun_path) ? nullptr : path;
}

}  // namespace

bool SystemdListens() { return NotifySocket() != nullptr; }

bool SystemdStartedThis() {
  const char* const pid = std::getenv("SYSTEMD_EXEC_PID");
  return pid != nullptr && absl::StrCat(::getpid()) == pid;
}

void NotifySystemd(const std::string& lines) {
  const char* const path = NotifySocket();
  if (path == nullptr) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path) + 1);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  (void)::sendto(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), size);
}

std::string ExtendTimeout(double seconds) {
  return absl::StrCat("EXTEND_TIMEOUT_USEC=", static_cast<int64_t>(std::ceil(seconds) * 1e6));
}

void NotifyReloading() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // the clock that the protocol names
  NotifySystemd(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=",
                             int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000));
}

}  // namespace octavo
