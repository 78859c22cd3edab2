#include "client/cpp/lib/handoff.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <limits>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "client/cpp/wire/handoff_packets.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::client {
namespace {

namespace hv = handoff::v1;
using std::chrono::milliseconds;

constexpr int kMostHave = 1024;

// "DTYPE_U16" → "u16"; empty for a type that this client does not know.
std::string ScalarOf(hv::Dtype dtype) {
  std::string name = dtype == hv::DTYPE_UNSPECIFIED ? "" : hv::Dtype_Name(dtype);
  name.erase(0, std::strlen("DTYPE_"));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace

Error ErrorOf(const hv::Refused& refused) {
  const bool known = refused.code() >= static_cast<int>(Code::kCancelled) &&
                     refused.code() <= static_cast<int>(Code::kUnauthenticated);
  Error error(known ? static_cast<Code>(refused.code()) : Code::kUnknown, refused.message());
  error.reason = refused.reason();
  error.field = refused.field();
  for (const hv::Refused::Value& value : refused.values())
    error.numbers[value.name()] = value.value();
  return error;
}

std::shared_ptr<Handoff> Handoff::Connect(const std::string& path, milliseconds timeout,
                                          hv::Purpose purpose) {
  Descriptor connection(wire::ConnectHandoff(path));
  if (connection.get() < 0)
    throw Refusal(Code::kUnavailable, "SERVER_GONE",
                  "cannot connect to '" + path + "': " + std::strerror(errno));
  const std::shared_ptr<Handoff> made(new Handoff(path, std::move(connection), timeout));
  made->Greet(purpose);
  return made;
}

Handoff::~Handoff() = default;

void Handoff::ThrowGone(const std::string& what) const {
  throw Refusal(Code::kUnavailable, "SERVER_GONE", "the connection to " + path_ + " " + what);
}

void Handoff::ThrowUnknown(const hv::ServerMessage& message) const {
  throw Refusal(Code::kInternal, "PROTOCOL",
                "the server at " + path_ +
                    " gave an answer that this client does not understand (body " +
                    std::to_string(message.body_case()) + ")");
}

void Handoff::Greet(hv::Purpose purpose) {
  const std::lock_guard lock(mutex_);
  const hv::ServerMessage answer = Ask(wire::HelloFor(purpose)).message;
  if (!answer.has_welcome() || answer.welcome().version() < wire::kOldestVersion ||
      answer.welcome().version() > wire::kNewestVersion)
    ThrowUnknown(answer);
}

void Handoff::Send(const hv::ClientMessage& message, int descriptor) {
  // A server that has ended the connection may have said why: that is still to be read.
  if (!wire::SendPacket(socket_.get(), message, descriptor) && errno != EPIPE) gone_ = true;
}

bool Handoff::Receive(milliseconds at_most, Packet* packet) {
  pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const int ready = ::poll(&waiting, 1, static_cast<int>(at_most.count()));
  if (ready == 0 || (ready < 0 && errno == EINTR)) return false;
  wire::ReceivedPacket received = wire::ReceivePacket(socket_.get());
  packet->descriptors.clear();
  for (const int fd : received.descriptors) packet->descriptors.emplace_back(fd);
  packet->message.Clear();
  // Invalid data end the connection, too, because later messages could not be matched to requests.
  if (received.bytes.empty() || !received.whole ||
      !wire::ParsePacket(received.bytes, &packet->message))
    gone_ = true;
  return !gone_;
}

Handoff::Packet Handoff::Ask(hv::ClientMessage message, int descriptor) {
  const uint64_t number = ++asked_;
  message.set_request(number);
  Send(message, descriptor);
  const auto until = std::chrono::steady_clock::now() + timeout_;
  Packet packet;
  while (!gone_) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      ThrowGone("brought no answer within " + std::to_string(timeout_.count()) + " ms");
    if (!Receive(left, &packet)) continue;
    // A server may refuse a connection before it has read anything from it.
    const bool refused = packet.message.has_refused() && packet.message.refused().has_versions();
    if (packet.message.request() != number && !refused) {
      Note(packet);
      continue;
    }
    if (packet.message.has_refused()) throw ErrorOf(packet.message.refused());
    return packet;
  }
  ThrowGone();
}

void Handoff::Note(const Packet& packet) {
  const hv::ServerMessage& message = packet.message;
  if (message.has_revoked())
    revoked_[message.revoked().name()] = SecondsOf(message.revoked().grace());
  if (message.has_released()) revoked_.erase(message.released().name());
  if (message.has_import_ended()) {
    std::string why = hv::ImportEnded::Why_Name(message.import_ended().why());
    why.erase(0, std::strlen("WHY_"));
    ended_[message.import_ended().name()] =
        why.empty() ? "reason " + std::to_string(message.import_ended().why()) : why;
  }
}

Handoff::Loan Handoff::Lend(const std::string& nonce, int descriptor) {
  const std::lock_guard lock(mutex_);
  hv::ClientMessage message;
  message.mutable_present()->set_ticket(nonce);
  const hv::ServerMessage answer = Ask(std::move(message), descriptor).message;
  if (!answer.has_imported()) ThrowUnknown(answer);
  return {.buffer = answer.imported().name(), .grant = answer.grant()};
}

uint64_t Handoff::Publish(const Loan& loan) {
  const std::lock_guard lock(mutex_);
  hv::ClientMessage message;
  message.set_grant(loan.grant);
  message.mutable_publish();
  const hv::ServerMessage answer = Ask(std::move(message)).message;
  if (!answer.has_published()) ThrowUnknown(answer);
  return answer.published().version();
}

void Handoff::End(const Loan& loan) {
  const std::lock_guard lock(mutex_);
  if (ended_.count(loan.buffer) != 0) return;
  hv::ClientMessage message;
  message.set_grant(loan.grant);
  message.mutable_end();
  (void)Ask(std::move(message));
  const auto until = std::chrono::steady_clock::now() + timeout_;
  Packet packet;
  while (ended_.count(loan.buffer) == 0) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) ThrowGone("does not say that the memory is read no more");
    if (Receive(left, &packet)) Note(packet);
    if (gone_) ThrowGone();
  }
}

std::string Handoff::EndOf(const Loan& loan) {
  const std::lock_guard lock(mutex_);
  Packet packet;
  while (!gone_ && Receive(milliseconds(0), &packet)) Note(packet);
  const auto it = ended_.find(loan.buffer);
  return it != ended_.end() ? it->second : gone_ ? "SERVER_GONE" : "";
}

template <class Request>
void Handoff::SayHave(Request* request) const {
  for (const auto& [id, memory] : memory_) {
    if (request->have_size() == kMostHave) break;  // the server sends what it need not then
    request->add_have(id);
  }
}

Mapped Handoff::Present(const std::string& nonce) {
  const std::lock_guard lock(mutex_);
  hv::ClientMessage message;
  message.mutable_present()->set_ticket(nonce);
  SayHave(message.mutable_present());
  const Packet packet = Ask(std::move(message));
  grant_ = packet.message.grant();
  return Map(packet);
}

Mapped Handoff::Take(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  if (!grant_.has_value())
    throw Refusal(Code::kPermissionDenied, "TICKET_UNKNOWN", "present a ticket first");
  hv::ClientMessage message;
  message.set_grant(*grant_);
  message.mutable_take()->set_volume(volume);
  SayHave(message.mutable_take());
  return Map(Ask(std::move(message)));
}

bool Handoff::presented() {
  const std::lock_guard lock(mutex_);
  return grant_.has_value();
}

MappedInfo Handoff::Described(const hv::Export& about) const {
  const auto wrong = [&](const std::string& what) {
    return Refusal(Code::kInternal, "PROTOCOL",
                   "of " + about.resource() + " the server says " + what);
  };
  const std::string scalar = ScalarOf(about.dtype());
  if (scalar.empty())
    throw wrong("a type that this client does not know (" + std::to_string(about.dtype()) + ")");
  if (about.kind() != hv::MEMORY_KIND_HOST_MEMFD && about.kind() != hv::MEMORY_KIND_CUDA_VMM)
    throw wrong("a kind that this client does not know (" + std::to_string(about.kind()) + ")");
  if (about.mapped_bytes() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
      about.byte_offset() > about.mapped_bytes() ||
      about.byte_size() > about.mapped_bytes() - about.byte_offset())
    throw wrong("that it does not lie in the memory that was handed over");
  return {.kind = about.kind() == hv::MEMORY_KIND_CUDA_VMM ? MemoryKind::kCudaVmm
                                                           : MemoryKind::kHostMemfd,
          .name = about.name(),
          .of = about.resource(),
          .memory = about.memory(),
          .generation = about.generation(),
          .version = about.version(),
          .digest = about.digest(),
          .scalar = scalar,
          .lanes = about.lanes(),
          .shape = {about.shape().begin(), about.shape().end()},
          .bytes = static_cast<int64_t>(about.byte_size()),
          .offset = static_cast<int64_t>(about.byte_offset()),
          .device_uuid = about.device_uuid()};
}

Mapped Handoff::Map(const Packet& packet) {
  if (!packet.message.has_exported()) ThrowUnknown(packet.message);
  const hv::Export& about = packet.message.exported();
  const uint64_t grant = packet.message.grant();
  try {
    MappedInfo info = Described(about);
    std::shared_ptr<MappedMemory> memory;
    if (const auto it = memory_.find(info.memory); it != memory_.end()) {
      memory = it->second;
    } else {
      if (packet.descriptors.empty())
        throw Refusal(Code::kInternal, "PROTOCOL",
                      "the server sent no descriptor of " + info.memory);
      const int fd = packet.descriptors.front().get();
      const auto mapped_bytes = static_cast<int64_t>(about.mapped_bytes());
      memory = info.kind == MemoryKind::kCudaVmm ? MapCuda(fd, mapped_bytes, info.device_uuid)
                                                 : MapFile(fd, mapped_bytes);
      memory_[info.memory] = memory;
    }
    return Mapped(std::make_shared<Mapped::Impl>(shared_from_this(), grant, std::move(info),
                                                 std::move(memory)));
  } catch (const Error&) {
    Release(grant, about.name());
    throw;
  }
}

void Handoff::Forget() {
  const std::lock_guard lock(mutex_);
  std::erase_if(memory_, [](const auto& item) { return item.second.use_count() == 1; });
}

size_t Handoff::kept() {
  const std::lock_guard lock(mutex_);
  return memory_.size();
}

// Takes no lock and waits for no answer, because destructors call it at any time.
void Handoff::Release(uint64_t grant, const std::string& name) {
  if (gone_) return;
  hv::ClientMessage message;
  message.set_grant(grant);
  message.mutable_release()->set_name(name);
  Send(message);
}

void Handoff::Poll() {
  const std::lock_guard lock(mutex_);
  Packet packet;
  while (!gone_ && Receive(milliseconds(0), &packet)) Note(packet);
  if (gone_) ThrowGone();
}

std::optional<double> Handoff::RevokedOf(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto it = revoked_.find(name);
  return it == revoked_.end() ? std::nullopt : std::optional(it->second);
}

void Handoff::WaitForRevocation(const std::string& name, milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    Poll();
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (RevokedOf(name).has_value() || left.count() <= 0) return;
    // Wait without the lock and in short turns, because other threads may send requests meanwhile
    // and may receive the message that this one waits for.
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 100)));
  }
}

// -- mappings

namespace {

Error Released(const MappedInfo& about) {
  return Refusal(Code::kFailedPrecondition, "RELEASED",
                 about.name + " of " + about.of + " was given back");
}

}  // namespace

void Mapped::Impl::Release() {
  if (released.exchange(true)) return;
  try {
    memory->Synchronize();
  } catch (const Error&) {  // the context and its work are gone
  }
  handoff->Release(grant, info.name);
}

Mapped::Mapped(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Mapped::Mapped(Mapped&&) noexcept = default;
Mapped& Mapped::operator=(Mapped&&) noexcept = default;
Mapped::~Mapped() = default;

const MappedInfo& Mapped::info() const { return impl_->info; }
const void* Mapped::data() const {
  return static_cast<const std::byte*>(impl_->memory->address()) + impl_->info.offset;
}
int Mapped::device() const { return impl_->memory->device(); }
void Mapped::Release() { impl_->Release(); }

Bytes Mapped::Copy() const {
  const MappedInfo& about = impl_->info;
  if (impl_->released) throw Released(about);
  Bytes bytes(static_cast<size_t>(about.bytes));
  impl_->memory->Read(data(), bytes.data(), bytes.size());
  return bytes;
}

std::optional<double> Mapped::Revoked() {
  if (impl_->handoff->alive()) {
    try {
      impl_->handoff->Poll();
    } catch (const Error&) {  // messages before the end were handled
    }
  }
  return impl_->handoff->RevokedOf(impl_->info.name);
}

std::optional<double> Mapped::WaitRevoked(milliseconds at_most) {
  impl_->handoff->WaitForRevocation(impl_->info.name, at_most);
  return impl_->handoff->RevokedOf(impl_->info.name);
}

void Mapped::Check() {
  const MappedInfo& about = impl_->info;
  if (impl_->released) throw Released(about);
  impl_->handoff->Poll();
  if (const auto grace = impl_->handoff->RevokedOf(about.name); grace.has_value()) {
    throw Refusal(Code::kFailedPrecondition, "EXPORT_REVOKED",
                  "the server wants " + about.name + " of " + about.of + " back within " +
                      std::to_string(*grace) + " s; Release it");
  }
}

std::span<const std::byte> Mapped::HostBytes() const {
  if (impl_->info.kind != MemoryKind::kHostMemfd)
    throw std::logic_error("Mapped::as: this is memory of a GPU; data() is its device address");
  return {static_cast<const std::byte*>(data()), static_cast<size_t>(impl_->info.bytes)};
}

}  // namespace octavo::client
