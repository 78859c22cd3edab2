#include "client/cpp/lib/handoff.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace octavo::client {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr size_t kMostMessageBytes = 64 << 10, kMostDescriptors = 16;

Code CodeOf(const std::string& name) {
  static const std::map<std::string, Code> codes = {
      {"CANCELLED", Code::kCancelled},
      {"INVALID_ARGUMENT", Code::kInvalidArgument},
      {"DEADLINE_EXCEEDED", Code::kDeadlineExceeded},
      {"NOT_FOUND", Code::kNotFound},
      {"ALREADY_EXISTS", Code::kAlreadyExists},
      {"PERMISSION_DENIED", Code::kPermissionDenied},
      {"RESOURCE_EXHAUSTED", Code::kResourceExhausted},
      {"FAILED_PRECONDITION", Code::kFailedPrecondition},
      {"ABORTED", Code::kAborted},
      {"OUT_OF_RANGE", Code::kOutOfRange},
      {"UNIMPLEMENTED", Code::kUnimplemented},
      {"INTERNAL", Code::kInternal},
      {"UNAVAILABLE", Code::kUnavailable},
      {"DATA_LOSS", Code::kDataLoss},
      {"UNAUTHENTICATED", Code::kUnauthenticated}};
  const auto it = codes.find(name);
  return it == codes.end() ? Code::kUnknown : it->second;
}

[[noreturn]] void Throw(const json& error) {
  Error refused(CodeOf(error.value("code", "")), error.value("message", ""));
  refused.reason = error.value("reason", "");
  refused.field = error.value("field", "");
  if (const auto numbers = error.find("numbers"); numbers != error.end() && numbers->is_object()) {
    for (const auto& [name, value] : numbers->items())
      refused.numbers[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  throw refused;
}

}  // namespace

std::shared_ptr<Handoff> Handoff::Connect(const std::string& path, milliseconds timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Refusal(Code::kUnavailable, "SERVER_GONE", "'" + path + "' is no path of a socket");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Descriptor connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connection.get() < 0 ||
      ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0) {
    throw Refusal(Code::kUnavailable, "SERVER_GONE",
                  "cannot connect to " + path + ": " + std::strerror(errno));
  }
  return std::shared_ptr<Handoff>(new Handoff(path, std::move(connection), timeout));
}

Handoff::~Handoff() = default;

void Handoff::ThrowGone(const std::string& what) const {
  throw Refusal(Code::kUnavailable, "SERVER_GONE", "the connection to " + path_ + " " + what);
}

void Handoff::Send(const json& message) {
  const std::string text = message.dump();
  ssize_t sent;
  do {
    sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(text.size())) gone_ = true;
}

bool Handoff::Receive(milliseconds at_most, Packet* packet) {
  pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const int ready = ::poll(&waiting, 1, static_cast<int>(at_most.count()));
  if (ready == 0 || (ready < 0 && errno == EINTR)) return false;
  std::string text(kMostMessageBytes, '\0');
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  packet->descriptors.clear();
  for (cmsghdr* c = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); c != nullptr;
       c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      packet->descriptors.emplace_back(fd);
    }
  }
  if (got > 0) {
    text.resize(static_cast<size_t>(got));
    // Copies recurse, so refuse a message nested deeper than any of the server's.
    bool deep = false;
    packet->message = json::parse(
        text,
        [&](int depth, json::parse_event_t, json&) {
          deep |= depth > 32;
          return !deep;
        },
        /*allow_exceptions=*/false);
    if (deep) packet->message = nullptr;
  }
  // Invalid data end the connection, too, because later messages could not be matched to requests.
  if (got <= 0 || !packet->message.is_object()) gone_ = true;
  return !gone_;
}

Handoff::Packet Handoff::Ask(json message) {
  const uint64_t number = ++asked_;
  message["re"] = number;
  Send(message);
  const auto until = std::chrono::steady_clock::now() + timeout_;
  Packet packet;
  while (!gone_) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      ThrowGone("brought no answer within " + std::to_string(timeout_.count()) + " ms");
    if (!Receive(left, &packet)) continue;
    if (const auto re = packet.message.find("re");
        re == packet.message.end() || *re != json(number)) {
      Note(packet);
      continue;
    }
    if (const auto error = packet.message.find("error");
        error != packet.message.end() && error->is_object())
      Throw(*error);
    return packet;
  }
  ThrowGone();
}

void Handoff::Note(const Packet& packet) {
  const json& message = packet.message;
  if (const auto revoked = message.find("revoked");
      revoked != message.end() && revoked->is_string()) {
    revoked_[revoked->get<std::string>()] = message.value("grace_seconds", 0.0);
  }
  if (const auto released = message.find("released");
      released != message.end() && released->is_string())
    revoked_.erase(released->get<std::string>());
}

json Handoff::Have() const {
  json have = json::array();
  for (const auto& [id, memory] : memory_) have.push_back(id);
  return have;
}

Mapped Handoff::Present(const std::string& nonce) {
  const std::lock_guard lock(mutex_);
  const Packet packet = Ask({{"ticket", nonce}, {"have", Have()}});
  grant_ = packet.message.value("grant", uint64_t{0});
  return Map(packet);
}

Mapped Handoff::Take(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  if (!grant_.has_value())
    throw Refusal(Code::kPermissionDenied, "TICKET_UNKNOWN", "present a ticket first");
  return Map(Ask({{"grant", *grant_}, {"take", volume}, {"have", Have()}}));
}

bool Handoff::presented() {
  const std::lock_guard lock(mutex_);
  return grant_.has_value();
}

Mapped Handoff::Map(const Packet& packet) {
  const json& about = packet.message;
  const auto grant = about.value("grant", uint64_t{0});
  MappedInfo info;
  std::shared_ptr<MappedMemory> memory;
  try {
    const std::string kind = about.at("kind").get<std::string>();
    info = {.kind = kind == "CUDA_VMM" ? MemoryKind::kCudaVmm : MemoryKind::kHostMemfd,
            .name = about.at("export").get<std::string>(),
            .of = about.at("of").get<std::string>(),
            .memory = about.at("memory").get<std::string>(),
            .generation = about.at("generation").get<uint64_t>(),
            .version = about.at("version").get<uint64_t>(),
            .digest = about.at("digest").get<std::string>(),
            .scalar = about.at("scalar").get<std::string>(),
            .lanes = about.at("lanes").get<uint32_t>(),
            .shape = about.at("shape").get<std::vector<int64_t>>(),
            .bytes = about.at("byte_size").get<int64_t>(),
            .offset = about.at("byte_offset").get<int64_t>(),
            .device_uuid = about.at("device_uuid").get<std::string>()};
    const auto mapped_bytes = about.at("mapped_bytes").get<int64_t>();
    if (info.bytes < 0 || info.offset < 0 || info.offset > mapped_bytes ||
        info.bytes > mapped_bytes - info.offset) {
      throw Refusal(Code::kInternal, "PROTOCOL",
                    info.of + " would not lie in the memory that was handed over");
    }
    std::shared_ptr<MappedMemory>& kept = memory_[info.memory];
    if (kept == nullptr) {
      if (packet.descriptors.empty())
        throw Refusal(Code::kInternal, "PROTOCOL",
                      "the server sent no descriptor of " + info.memory);
      const int fd = packet.descriptors.front().get();
      kept = info.kind == MemoryKind::kCudaVmm ? MapCuda(fd, mapped_bytes, info.device_uuid)
                                               : MapFile(fd, mapped_bytes);
    }
    memory = kept;
  } catch (const json::exception& error) {
    throw Refusal(Code::kInternal, "PROTOCOL",
                  std::string("the server's answer lacks something: ") + error.what());
  } catch (const Error&) {
    if (const auto it = memory_.find(info.memory); it != memory_.end() && it->second == nullptr)
      memory_.erase(it);
    Send({{"grant", grant}, {"release", info.name}});
    throw;
  }
  return Mapped(std::make_shared<Mapped::Impl>(shared_from_this(), grant, std::move(info),
                                               std::move(memory)));
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
  if (!gone_) Send({{"grant", grant}, {"release", name}});
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

std::vector<std::byte> Mapped::Copy() const {
  const MappedInfo& about = impl_->info;
  if (impl_->released) throw Released(about);
  std::vector<std::byte> bytes(static_cast<size_t>(about.bytes));
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
