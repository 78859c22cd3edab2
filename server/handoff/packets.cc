#include "server/handoff/packets.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/util/time_util.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::handoff {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Of a Refused, so that it fits the room that a client without a library has for it.
constexpr size_t kMostText = 2048, kMostField = 256, kMostValue = 128;
constexpr int kMostValues = 16;
constexpr size_t kName = 256;  // volumes/..., exports/...
constexpr int kMostMemories = 1024;

absl::Status NotOfThisForm(const std::string& what) {
  return Refusal(absl::StatusCode::kInvalidArgument, Reason::kProtocol, what);
}

// The beginning of a UTF-8 text, whole characters.
std::string Beginning(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

absl::Status Parse(const char* bytes, size_t count, v1::ClientMessage* message) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes),
                                               static_cast<int>(count));
  input.SetRecursionLimit(kMostDepth);
  // Protobuf logs a text that is no UTF-8, which would let clients fill the log.
  const google::protobuf::LogSilencer quiet;
  if (message->ParseFromCodedStream(&input) && input.ConsumedEntireMessage())
    return absl::OkStatus();
  message->Clear();
  return NotOfThisForm(absl::StrCat("the packet is no octavo.handoff.v1.ClientMessage of at most ",
                                    kMostDepth, " messages in each other"));
}

const FieldBound& BoundOf(const FieldDescriptor* field) {
  const std::string name(absl::StripPrefix(field->full_name(), "octavo.handoff.v1."));
  for (const FieldBound& bound : FieldBounds()) {
    if (bound.field == name) return bound;
  }
  static const FieldBound& strict = *new FieldBound{.field = "", .count = 16, .bytes = 63};
  return strict;
}

absl::Status Check(const Message& message) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  std::string scratch;
  for (const FieldDescriptor* field : fields) {
    const bool text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING,
               nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!field->is_repeated()) {
      if (nested) OCTAVO_RETURN_IF_ERROR(Check(reflection->GetMessage(message, field)));
      if (!text) continue;
      const size_t bytes = reflection->GetStringReference(message, field, &scratch).size();
      if (const size_t most = BoundOf(field).bytes; bytes > most)
        return InvalidField(field->name(), absl::StrCat("has ", bytes, " bytes; allowed ", most));
      continue;
    }
    const FieldBound& bound = BoundOf(field);
    const int count = reflection->FieldSize(message, field);
    if (count > bound.count)
      return InvalidField(field->name(),
                          absl::StrCat("has ", count, " entries; allowed ", bound.count));
    for (int i = 0; (text || nested) && i < count; ++i) {
      if (nested) {
        OCTAVO_RETURN_IF_ERROR(Check(reflection->GetRepeatedMessage(message, field, i)));
        continue;
      }
      const size_t bytes =
          reflection->GetRepeatedStringReference(message, field, i, &scratch).size();
      if (bytes > bound.bytes)
        return InvalidField(absl::StrCat(field->name(), "[", i, "]"),
                            absl::StrCat("has ", bytes, " bytes; allowed ", bound.bytes));
    }
  }
  return absl::OkStatus();
}

std::vector<UniqueFd> DescriptorsOf(const msghdr& header) {
  std::vector<UniqueFd> descriptors;
  auto* read = const_cast<msghdr*>(&header);  // CMSG_NXTHDR takes no other
  for (cmsghdr* c = CMSG_FIRSTHDR(read); c != nullptr; c = CMSG_NXTHDR(read, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

absl::Status CheckDescriptors(size_t came, bool cut_off, size_t most) {
  if (came <= most && !cut_off) return absl::OkStatus();
  if (most == 0) return NotOfThisForm("the packet has descriptors, and clients send none here");
  // The kernel gives none at all if this process can have none.
  if (came > 0) return NotOfThisForm(absl::StrCat("the packet has more descriptors than ", most));
  return Refusal(absl::StatusCode::kResourceExhausted, Reason::kNoDescriptors,
                 "the server has no file descriptor left for that of the packet; send it again "
                 "later");
}

}  // namespace

std::optional<Packet> ReceivePacket(int socket, DescriptorRoom room) {
  const auto bytes = std::make_unique_for_overwrite<char[]>(kMostMessageBytes);
  iovec part{.iov_base = bytes.get(), .iov_len = kMostMessageBytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  // All that a packet can have (SCM_MAX_FD): what there is no room for, the kernel would close here
  // and now, and that may wait (DescriptorBin).
  alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
  if (room.free) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  const ssize_t got = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  Packet packet;
  if (got <= 0) {
    packet.end = true;
    return packet;
  }
  packet.descriptors = DescriptorsOf(header);
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    packet.status =
        NotOfThisForm(absl::StrCat("the packet is longer than ", kMostMessageBytes, " bytes"));
    return packet;
  }
  packet.status = Parse(bytes.get(), static_cast<size_t>(got), &packet.message);
  if (packet.status.ok()) {
    packet.status = CheckDescriptors(packet.descriptors.size(),
                                     (header.msg_flags & MSG_CTRUNC) != 0, room.most);
  }
  if (packet.status.ok()) packet.status = CheckBounds(packet.message);
  return packet;
}

bool SendPacket(int socket, const v1::ServerMessage& message, int descriptor) {
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
    sent = ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

const std::vector<FieldBound>& FieldBounds() {
  static const auto& bounds = *new std::vector<FieldBound>{
      {.field = "Present.ticket", .count = 0, .bytes = 64},
      {.field = "Present.have", .count = kMostMemories, .bytes = 32},
      {.field = "Take.volume", .count = 0, .bytes = kName},
      {.field = "Take.have", .count = kMostMemories, .bytes = 32},
      {.field = "Release.name", .count = 0, .bytes = kName},
      {.field = "Forget.memory", .count = kMostMemories, .bytes = 32},
  };
  return bounds;
}

absl::Status CheckBounds(const v1::ClientMessage& message) { return Check(message); }

absl::StatusOr<uint32_t> CommonVersion(const v1::Versions& client) {
  const uint32_t newest = std::min(client.newest(), kNewestVersion);
  if (client.newest() > 0 && (client.oldest() < 1 || client.oldest() > client.newest()))
    return FieldOutOfRange("versions.oldest", client.oldest(), 1, client.newest());
  if (newest >= kOldestVersion && newest >= client.oldest()) return newest;
  return WithInfo(
      absl::UnimplementedError(absl::StrCat("the client speaks versions ", client.oldest(), " to ",
                                            client.newest(), " of the hand-over wire, this server ",
                                            kOldestVersion, " to ", kNewestVersion)),
      {.reason = Reason::kProtocolVersion,
       .field = "versions",
       .numbers = {{"oldest", absl::StrCat(kOldestVersion)},
                   {"newest", absl::StrCat(kNewestVersion)}}});
}

absl::Status Refusal(absl::StatusCode code, Reason reason, const std::string& what) {
  return WithInfo(absl::Status(code, what), {.reason = reason, .field = "", .numbers = {}});
}

v1::Refused RefusedOf(const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  v1::Refused refused;
  refused.set_code(static_cast<int32_t>(status.code()));  // absl's numbers are google.rpc.Code's
  refused.set_reason(std::string(Name(info.reason)));
  refused.set_field(Beginning(info.field, kMostField));
  refused.set_message(Beginning(status.message(), kMostText));
  for (const auto& [name, value] : info.numbers) {
    if (refused.values_size() == kMostValues) break;
    v1::Refused::Value* one = refused.add_values();
    one->set_name(Beginning(name, kMostValue));
    one->set_value(Beginning(value, kMostValue));
  }
  return refused;
}

google::protobuf::Duration DurationOf(double seconds) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(std::llround(seconds * 1e9));
}

}  // namespace octavo::handoff
