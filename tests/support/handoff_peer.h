#pragma once

#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "gpu/base/unique_fd.h"

namespace octavo::testing {

/// The client's end of the hand-over socket.
class HandoffPeer {
 public:
  explicit HandoffPeer(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      fd_ = UniqueFd();
  }
  bool connected() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }

  bool SendText(const std::string& text) {
    return ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  bool Send(const nlohmann::json& message) { return SendText(message.dump()); }

  struct Packet {
    nlohmann::json message;  // discarded: the connection has ended, or no message arrived in time
    std::vector<UniqueFd> fds;
    bool ended = false;
    std::string reason() const {
      return message.is_object() && message.contains("error")
                 ? message["error"]["reason"].get<std::string>()
                 : "";
    }
  };
  Packet Receive(int timeout_ms = 20000) {
    Packet packet;
    packet.message = nlohmann::json::value_t::discarded;
    pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, timeout_ms) <= 0) return packet;
    std::string text(65536, '\0');
    iovec part{.iov_base = text.data(), .iov_len = text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got <= 0) {
      packet.ended = true;
      return packet;
    }
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
        int fd;
        std::memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
        packet.fds.emplace_back(fd);
      }
    }
    packet.message = nlohmann::json::parse(text.begin(), text.begin() + got, nullptr, false);
    return packet;
  }
  Packet Ask(const nlohmann::json& message) {
    if (!Send(message))
      return {.message = nlohmann::json::value_t::discarded, .fds = {}, .ended = true};
    return Receive();
  }
  void Close() { const UniqueFd gone = std::move(fd_); }

 private:
  UniqueFd fd_;
};

}  // namespace octavo::testing
