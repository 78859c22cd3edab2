#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/handoff/v1/handoff.pb.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/mapped_memory.h"

namespace octavo::client {

/// The Error that a refusal of the hand-over wire says.
Error ErrorOf(const handoff::v1::Refused& refused);

/// A connection to the hand-over socket of a server, for memory, and the mappings received through
/// it (protocol: proto/octavo/handoff/v1/handoff.proto). It keeps mappings for the next volume in
/// the same memory. Thread-safe; mapped objects keep it alive.
class Handoff : public std::enable_shared_from_this<Handoff> {
 public:
  /// Throws Error: kUnavailable (SERVER_GONE), kUnimplemented (PROTOCOL_VERSION), kInternal
  /// (PROTOCOL), and what else the server refuses the connection with.
  static std::shared_ptr<Handoff> Connect(
      const std::string& path, std::chrono::milliseconds timeout,
      handoff::v1::Purpose purpose = handoff::v1::PURPOSE_MEMORY);
  ~Handoff();

  /// Redeems a ticket and maps its memory. Throws the server's error, SERVER_GONE, MAP, CUDA.
  Mapped Present(const std::string& nonce);
  /// Maps another held volume, after a ticket was presented.
  Mapped Take(const std::string& volume);
  bool presented();

  // Of a connection for imports.
  /// Lends the memory of a descriptor by a ticket. Throws the server's error, SERVER_GONE.
  struct Loan {
    std::string buffer;
    uint64_t grant = 0;
  };
  Loan Lend(const std::string& nonce, int descriptor);
  /// The new version. Throws the server's error (NO_BUFFER), SERVER_GONE.
  uint64_t Publish(const Loan& loan);
  /// Ends the loan, and waits for the server's word that it reads the memory no more. Throws
  /// SERVER_GONE.
  void End(const Loan& loan);
  /// Why the server has ended it; empty = it has not said so.
  std::string EndOf(const Loan& loan);

  const std::string& path() const { return path_; }
  bool alive() const { return !gone_; }
  /// Drops unused mappings.
  void Forget();
  size_t kept();

  // For mapped objects.
  void Release(uint64_t grant, const std::string& name);
  /// Handles messages that the server sent unasked.
  void Poll();
  std::optional<double> RevokedOf(const std::string& name);
  /// Waits until the export is revoked, the server has gone, or the time is over.
  void WaitForRevocation(const std::string& name, std::chrono::milliseconds at_most);

 private:
  struct Packet {
    handoff::v1::ServerMessage message;
    std::vector<Descriptor> descriptors;
  };
  Handoff(std::string path, Descriptor socket, std::chrono::milliseconds timeout)
      : path_(std::move(path)), timeout_(timeout), socket_(std::move(socket)) {}
  void Greet(handoff::v1::Purpose purpose);
  /// With a duplicate of `descriptor` unless it is -1.
  void Send(const handoff::v1::ClientMessage& message, int descriptor = -1);
  /// False if no message came within the time, or the connection has ended (gone_).
  bool Receive(std::chrono::milliseconds at_most, Packet* packet);
  Packet Ask(handoff::v1::ClientMessage message, int descriptor = -1);
  Mapped Map(const Packet& packet);
  MappedInfo Described(const handoff::v1::Export& about) const;
  void Note(const Packet& packet);
  template <class Request>
  void SayHave(Request* request) const;
  [[noreturn]] void ThrowUnknown(const handoff::v1::ServerMessage& message) const;
  [[noreturn]] void ThrowGone(const std::string& what = "has ended") const;

  const std::string path_;
  const std::chrono::milliseconds timeout_;
  const Descriptor socket_;
  std::atomic<bool> gone_{false};
  std::mutex mutex_;  // guards what follows, and receiving
  uint64_t asked_ = 0;
  std::optional<uint64_t> grant_;
  std::map<std::string, std::shared_ptr<MappedMemory>> memory_;  // by id
  std::map<std::string, double> revoked_;     // our exports: seconds left to give them back
  std::map<std::string, std::string> ended_;  // our imports: why
};

class Mapped::Impl {
 public:
  Impl(std::shared_ptr<Handoff> of, uint64_t grant_id, MappedInfo about,
       std::shared_ptr<MappedMemory> where)
      : handoff(std::move(of)), grant(grant_id), info(std::move(about)), memory(std::move(where)) {}
  ~Impl() { Release(); }
  void Release();

  const std::shared_ptr<Handoff> handoff;
  const uint64_t grant;
  const MappedInfo info;
  // kept to the end: a program that still reads after a release gets old or new bytes instead of a
  // crash
  const std::shared_ptr<MappedMemory> memory;
  std::atomic<bool> released{false};
};

}  // namespace octavo::client
