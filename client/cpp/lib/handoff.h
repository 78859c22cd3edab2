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

#include "nlohmann/json.hpp"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/mapped_memory.h"

namespace octavo::client {

/// The hand-over socket of a server and the mappings received through it (protocol:
/// server/handoff/fd_socket.h and server/exports/export_store.h). It keeps mappings for the next
/// volume in the same memory. Thread-safe; mapped objects keep it alive.
class Handoff : public std::enable_shared_from_this<Handoff> {
 public:
  /// Throws Error (kUnavailable, SERVER_GONE).
  static std::shared_ptr<Handoff> Connect(const std::string& path,
                                          std::chrono::milliseconds timeout);
  ~Handoff();

  /// Redeems a ticket and maps its memory. Throws the server's error, SERVER_GONE, MAP, CUDA.
  Mapped Present(const std::string& nonce);
  /// Maps another held volume, after a ticket was presented.
  Mapped Take(const std::string& volume);
  bool presented();

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
    nlohmann::json message;
    std::vector<Descriptor> descriptors;
  };
  Handoff(std::string path, Descriptor socket, std::chrono::milliseconds timeout)
      : path_(std::move(path)), timeout_(timeout), socket_(std::move(socket)) {}
  void Send(const nlohmann::json& message);
  /// False if no message came within the time, or the connection has ended (gone_).
  bool Receive(std::chrono::milliseconds at_most, Packet* packet);
  Packet Ask(nlohmann::json message);
  Mapped Map(const Packet& packet);
  void Note(const Packet& packet);
  nlohmann::json Have() const;
  [[noreturn]] void ThrowGone(const std::string& what = "has ended") const;

  const std::string path_;
  const std::chrono::milliseconds timeout_;
  const Descriptor socket_;
  std::atomic<bool> gone_{false};
  std::mutex mutex_;  // guards what follows, and receiving
  uint64_t asked_ = 0;
  std::optional<uint64_t> grant_;
  std::map<std::string, std::shared_ptr<MappedMemory>> memory_;  // by id
  std::map<std::string, double> revoked_;  // our exports: seconds left to give them back
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
