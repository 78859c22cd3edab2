#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "octavo/handoff/v1/handoff.pb.h"

#include "client/cpp/wire/handoff_packets.h"

namespace octavo::wire {

/// A client's side of the frames of a subscription in shared memory (PURPOSE_FRAMES). One thread
/// reads; Shut may come from any.
class FrameFeedReader {
 public:
  /// A frame, valid until Done of its slot.
  struct Arrived {
    uint32_t slot = 0;
    std::string_view about;           // an octavo.v1.Frame, serialised
    std::span<const std::byte> data;  // the array or the picture
  };
  enum class Event : uint8_t {
    kFrame = 0,
    kEnded = 1,    // no more frames come; `refusal` says why, unless the scan or job has ended
    kRefused = 2,  // `refusal` says why
    kGone = 3,     // the connection has ended
    kUnknown = 4   // what came is not understood, or cannot be mapped; `problem` says what
  };

  FrameFeedReader() = default;
  FrameFeedReader(const FrameFeedReader&) = delete;
  FrameFeedReader& operator=(const FrameFeedReader&) = delete;
  ~FrameFeedReader() {
    if (socket_ >= 0) ::close(socket_);
  }

  /// Connects and presents the ticket; waits for no answer. False, with errno, if there is no
  /// connection.
  bool Open(const std::string& path, const std::string& ticket) {
    socket_ = ConnectHandoff(path);
    if (socket_ < 0) return false;
    handoff::v1::ClientMessage present;
    present.set_request(1);
    present.mutable_present()->set_ticket(ticket);
    // A server that has ended the connection may have said why: Next tells.
    (void)(SendPacket(socket_, HelloFor(handoff::v1::PURPOSE_FRAMES)) &&
           SendPacket(socket_, present));
    return true;
  }
  /// Waits for the next event. After any but kFrame there is none.
  Event Next(Arrived* frame) {
    for (;;) {
      handoff::v1::ServerMessage message;
      Owned descriptor;
      if (!Receive(&message, &descriptor)) return problem_.empty() ? Event::kGone : Event::kUnknown;
      switch (message.body_case()) {
        case handoff::v1::ServerMessage::kWelcome: break;  // of a version that Hello named
        case handoff::v1::ServerMessage::kRefused:
          refusal_ = std::move(*message.mutable_refused());
          return Event::kRefused;
        case handoff::v1::ServerMessage::kFramesOpened: grant_ = message.grant(); break;
        case handoff::v1::ServerMessage::kFrameReady:
          grant_ = message.grant();
          if (!Take(message.frame_ready(), descriptor.fd, frame)) return Event::kUnknown;
          return Event::kFrame;
        case handoff::v1::ServerMessage::kFramesEnded:
          refusal_ = std::move(*message.mutable_frames_ended()->mutable_why());
          return Event::kEnded;
        default: break;  // unasked and not known: ignored
      }
    }
  }
  /// Gives the frame in the slot back; it must not be read any more.
  void Done(uint32_t slot) {
    handoff::v1::ClientMessage message;
    message.set_grant(grant_);
    message.mutable_done()->set_slot(slot);
    (void)SendPacket(socket_, message);  // if the server has gone, Next tells
  }
  /// Ends the connection: Next returns.
  void Shut() {
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
  }

  /// Code 0 (OK) unless the server has said something.
  const handoff::v1::Refused& refusal() const { return refusal_; }
  const std::string& problem() const { return problem_; }

 private:
  static constexpr size_t kMostSlots = 64;

  struct Owned {
    int fd = -1;
    Owned() = default;
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
      if (fd >= 0) ::close(fd);
    }
  };
  /// The memory of a slot.
  struct Mapping {
    uint64_t number = 0;
    const std::byte* at = nullptr;
    size_t bytes = 0;
    Mapping() = default;
    Mapping(Mapping&& other) noexcept { *this = std::move(other); }
    Mapping& operator=(Mapping&& other) noexcept {
      std::swap(number, other.number);
      std::swap(at, other.at);
      std::swap(bytes, other.bytes);
      return *this;
    }
    ~Mapping() {
      if (at != nullptr) ::munmap(const_cast<std::byte*>(at), bytes);
    }
  };

  bool Receive(handoff::v1::ServerMessage* message, Owned* descriptor) {
    const ReceivedPacket packet = ReceivePacket(socket_);
    for (const int fd : packet.descriptors) {  // a FrameReady has one at most
      if (descriptor->fd >= 0) ::close(descriptor->fd);
      descriptor->fd = fd;
    }
    if (packet.bytes.empty()) return false;
    if (!packet.whole || !ParsePacket(packet.bytes, message))
      return Fail("a packet that cannot be read");
    if (!packet.all_descriptors)
      return Fail("a descriptor, and this process may open no more files");
    return true;
  }
  bool Take(const handoff::v1::FrameReady& ready, int descriptor, Arrived* frame) {
    if (ready.slot() >= kMostSlots)
      return Fail("a frame in slot " + std::to_string(ready.slot()) + "; allowed 0 to 63");
    if (mappings_.size() <= ready.slot()) mappings_.resize(ready.slot() + 1);
    Mapping& mapping = mappings_[ready.slot()];
    if (descriptor >= 0 && !Map(ready, descriptor, &mapping)) return false;
    if (mapping.at == nullptr || mapping.number != ready.memory())
      return Fail("a frame in memory that did not come");
    if (ready.byte_size() > mapping.bytes || ready.frame_offset() > mapping.bytes ||
        ready.frame_bytes() > mapping.bytes - ready.frame_offset())
      return Fail("a frame that does not lie in its memory");
    frame->slot = ready.slot();
    frame->data = {mapping.at, static_cast<size_t>(ready.byte_size())};
    frame->about = {reinterpret_cast<const char*>(mapping.at) + ready.frame_offset(),
                    static_cast<size_t>(ready.frame_bytes())};
    return true;
  }
  bool Map(const handoff::v1::FrameReady& ready, int descriptor, Mapping* mapping) {
    // A read behind the end of the file would end the program.
    struct stat info {};
    if (ready.mapped_bytes() == 0 || ::fstat(descriptor, &info) != 0 ||
        static_cast<uint64_t>(info.st_size) < ready.mapped_bytes())
      return Fail("memory that is smaller than it says");
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return Fail("memory that may shrink");
    Mapping mapped;
    mapped.bytes = static_cast<size_t>(ready.mapped_bytes());
    void* const at = ::mmap(nullptr, mapped.bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED)
      return Fail(std::string("memory that cannot be mapped: ") + std::strerror(errno));
    mapped.at = static_cast<const std::byte*>(at);
    mapped.number = ready.memory();
    *mapping = std::move(mapped);
    return true;
  }
  bool Fail(const std::string& what) {
    problem_ = "the server sent " + what;
    return false;
  }

  int socket_ = -1;
  uint64_t grant_ = 0;
  std::vector<Mapping> mappings_;  // by slot
  handoff::v1::Refused refusal_;
  std::string problem_;
};

}  // namespace octavo::wire
