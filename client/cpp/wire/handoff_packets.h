#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "google/protobuf/io/coded_stream.h"

#include "octavo/handoff/v1/handoff.pb.h"

// A client's side of the hand-over wire (proto/octavo/handoff/v1/handoff.proto): packets to and
// from messages. What they mean is the caller's.
namespace octavo::wire {

inline constexpr uint32_t kOldestVersion = 1, kNewestVersion = 1;  // that these programs speak
inline constexpr size_t kMostMessageBytes = 64 << 10;
inline constexpr int kMostDepth = 8;  // of messages in each other

/// A connection to the socket at `path`, to be closed by the caller; -1, with errno, if there is
/// none (ENAMETOOLONG for what is no path of a socket).
inline int ConnectHandoff(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int connection = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return -1;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return connection;
  const int error = errno;
  ::close(connection);
  errno = error;
  return -1;
}

/// The first message of a connection.
inline handoff::v1::ClientMessage HelloFor(handoff::v1::Purpose purpose) {
  handoff::v1::ClientMessage message;
  handoff::v1::Hello& hello = *message.mutable_hello();
  hello.mutable_versions()->set_oldest(kOldestVersion);
  hello.mutable_versions()->set_newest(kNewestVersion);
  hello.set_purpose(purpose);
  return message;
}

/// Sends one packet, with a duplicate of `descriptor` unless it is -1; false, with errno, if it
/// cannot.
inline bool SendPacket(int socket, const handoff::v1::ClientMessage& message, int descriptor = -1) {
  std::string bytes = message.SerializeAsString();
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
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
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

/// What one packet of the server brought. The caller owns the descriptors.
struct ReceivedPacket {
  std::string bytes;  // empty: the connection has ended
  std::vector<int> descriptors;
  bool whole = true;            // false: there was no room for all bytes
  bool all_descriptors = true;  // false: this process had no room for one, and the kernel closed it
};
/// Waits for the next packet.
inline ReceivedPacket ReceivePacket(int socket) {
  constexpr size_t kMostDescriptors = 16;
  ReceivedPacket packet;
  packet.bytes.resize(kMostMessageBytes);
  iovec part{.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  for (cmsghdr* c = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); c != nullptr;
       c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      packet.descriptors.push_back(fd);
    }
  }
  packet.bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  packet.whole = (header.msg_flags & MSG_TRUNC) == 0;
  packet.all_descriptors = (header.msg_flags & MSG_CTRUNC) == 0;
  return packet;
}

/// False for bytes that are no message of the server.
inline bool ParsePacket(const std::string& bytes, handoff::v1::ServerMessage* message) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMostDepth);
  return message->ParseFromCodedStream(&input) && input.ConsumedEntireMessage();
}

}  // namespace octavo::wire
