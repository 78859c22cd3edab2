#pragma once

#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>
#include <vector>

#include "octavo/handoff/v1/handoff.pb.h"

#include "gpu/base/unique_fd.h"

namespace octavo::testing {

namespace wire = handoff::v1;

/// Messages of a client of the hand-over socket.
inline wire::ClientMessage HelloMessage(wire::Purpose purpose = wire::PURPOSE_MEMORY,
                                        uint32_t oldest = 1, uint32_t newest = 1) {
  wire::ClientMessage message;
  message.mutable_hello()->mutable_versions()->set_oldest(oldest);
  message.mutable_hello()->mutable_versions()->set_newest(newest);
  message.mutable_hello()->set_purpose(purpose);
  return message;
}
inline wire::ClientMessage PresentMessage(const std::string& ticket,
                                          std::initializer_list<std::string> have = {}) {
  wire::ClientMessage message;
  message.mutable_present()->set_ticket(ticket);
  for (const std::string& memory : have) message.mutable_present()->add_have(memory);
  return message;
}
inline wire::ClientMessage TakeMessage(uint64_t grant, const std::string& volume) {
  wire::ClientMessage message;
  message.set_grant(grant);
  message.mutable_take()->set_volume(volume);
  return message;
}
inline wire::ClientMessage EndMessage(uint64_t grant) {
  wire::ClientMessage message;
  message.set_grant(grant);
  message.mutable_end();
  return message;
}

/// The client's end of the hand-over socket.
class HandoffPeer {
 public:
  /// Connects without a word.
  static HandoffPeer Silent(const std::string& path) {
    return HandoffPeer(path, wire::PURPOSE_UNSPECIFIED);
  }
  /// Connects and says Hello.
  explicit HandoffPeer(const std::string& path, wire::Purpose purpose = wire::PURPOSE_MEMORY)
      : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      fd_ = UniqueFd();
    if (purpose != wire::PURPOSE_UNSPECIFIED && !Ask(HelloMessage(purpose)).message.has_welcome())
      fd_ = UniqueFd();
  }
  bool connected() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }

  /// Sends a packet, with a duplicate of `descriptor` unless it is -1.
  bool SendBytes(const std::string& bytes, int descriptor = -1) {
    iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (descriptor >= 0) {
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    return ::sendmsg(fd_.get(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  bool Send(const wire::ClientMessage& message, int descriptor = -1) {
    return SendBytes(message.SerializeAsString(), descriptor);
  }

  struct Packet {
    wire::ServerMessage message;  // empty: none came in time, or the connection has ended
    std::vector<UniqueFd> fds;
    bool ended = false;
    std::string reason() const { return message.refused().reason(); }
  };
  Packet Receive(int timeout_ms = 20000) {
    Packet packet;
    pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, timeout_ms) <= 0) return packet;
    std::string bytes(65536, '\0');
    iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
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
    if (!packet.message.ParseFromArray(bytes.data(), static_cast<int>(got))) packet.message.Clear();
    return packet;
  }
  Packet Ask(const wire::ClientMessage& message, int descriptor = -1) {
    if (!Send(message, descriptor)) return {.message = {}, .fds = {}, .ended = true};
    return Receive();
  }
  void Close() { const UniqueFd gone = std::move(fd_); }

 private:
  UniqueFd fd_;
};

}  // namespace octavo::testing
