#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "octavo/handoff/v1/handoff.pb.h"

#include "gpu/base/reason.h"
#include "gpu/base/unique_fd.h"

// Packets of the hand-over wire (proto/octavo/handoff/v1/handoff.proto): to messages, and back.
// Nothing that a client sends is used before it was checked here.
namespace octavo::handoff {

/// Versions of the wire that this server speaks.
inline constexpr uint32_t kOldestVersion = 1, kNewestVersion = 1;

inline constexpr size_t kMostMessageBytes = 64 << 10;
inline constexpr int kMostDepth = 8;  // of messages in each other, unknown ones included

/// One packet of a client.
struct Packet {
  v1::ClientMessage message;          // empty if it could not be read
  absl::Status status;                // why it is refused, whatever it says
  std::vector<UniqueFd> descriptors;  // that came with it
  bool end = false;                   // there is none: the connection has ended
};

/// Whether and how many descriptors a packet may have.
struct DescriptorRoom {
  size_t most = 0;
  bool free = true;  // false: the process takes none now, and the kernel closes what comes
};
/// Takes a packet from the socket; nothing if none is there. Never waits. The caller closes the
/// descriptors, also those of a packet that is refused. InvalidArgument (PROTOCOL: too long, no
/// ClientMessage, too deep, with more descriptors; BAD_FIELD: beyond the bounds), ResourceExhausted
/// (NO_DESCRIPTORS: this process can take none).
std::optional<Packet> ReceivePacket(int socket, DescriptorRoom room = {});
/// Sends one packet or nothing, with a duplicate of `descriptor` unless it is -1; never waits.
bool SendPacket(int socket, const v1::ServerMessage& message, int descriptor = -1);

/// The most that a field of a ClientMessage may hold. The table has a line for each repeated, text
/// and bytes field (a test fails otherwise).
struct FieldBound {
  std::string field;  // "Present.have"
  int count = 0;      // elements; 0 = not repeated
  size_t bytes = 0;   // of the text, or of each
};
const std::vector<FieldBound>& FieldBounds();
/// InvalidArgument (BAD_FIELD: the field, what it has, what is allowed).
absl::Status CheckBounds(const v1::ClientMessage& message);

/// The newest version that both sides speak. Unimplemented (PROTOCOL_VERSION), InvalidArgument
/// (BAD_FIELD).
absl::StatusOr<uint32_t> CommonVersion(const v1::Versions& client);

/// An error with a reason and without a field.
absl::Status Refusal(absl::StatusCode code, Reason reason, const std::string& what);
/// An error as the client gets it.
v1::Refused RefusedOf(const absl::Status& status);
google::protobuf::Duration DurationOf(double seconds);

}  // namespace octavo::handoff
