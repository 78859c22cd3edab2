// The producer's header speaks the hand-over wire without protobuf: the bytes that it writes, and
// how it reads answers.

#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cpp/include/octavo/octavo_ring.h"
#include "tests/server/handoff/text_grant.h"
#include "tests/support/seed.h"

namespace octavo::handoff {
namespace {

using octavo::testing::HandoffPeer;
using octavo::testing::HelloMessage;
using octavo::testing::PresentMessage;
using ::testing::HasSubstr;
using testing::TextGrant;

octavo_ring_part PartOf(const std::string& bytes) {
  return {.bytes = reinterpret_cast<const unsigned char*>(bytes.data()),
          .length = bytes.size(),
          .value = 0};
}
std::string TextOf(const octavo_ring_part& part) {
  return {reinterpret_cast<const char*>(part.bytes), part.length};
}

/// Answers as the grant of a ring does.
class MemoryOfARing final : public Grant {
 public:
  v1::Purpose purpose() const override { return v1::PURPOSE_RING; }
  absl::StatusOr<Answer> Open(const Peer&, const v1::Present& request,
                              std::shared_ptr<Link>) override {
    ticket = request.ticket();
    Answer answer{.message = {}, .descriptor = fd_.get(), .keep = nullptr};
    answer.message.mutable_ring()->set_byte_size(4096);
    answer.message.mutable_ring()->set_attachment(1);
    return answer;
  }
  void Ended(GrantEnd) override {}
  std::string ticket;

 private:
  const UniqueFd fd_{::memfd_create("ring", MFD_CLOEXEC)};
};

class RingHeaderTest : public testing::SocketTest {};

TEST_F(RingHeaderTest, ItsHelloIsTheMessage) {
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(octavo_ring_hello), sizeof octavo_ring_hello),
            HelloMessage(v1::PURPOSE_RING, OCTAVO_RING_WIRE_VERSION, OCTAVO_RING_WIRE_VERSION)
                .SerializeAsString());
  EXPECT_EQ(OCTAVO_RING_WELCOME, v1::ServerMessage::kWelcomeFieldNumber);
  EXPECT_EQ(OCTAVO_RING_REFUSED, v1::ServerMessage::kRefusedFieldNumber);
  EXPECT_EQ(OCTAVO_RING_RING, v1::ServerMessage::kRingFieldNumber);
  EXPECT_EQ(OCTAVO_RING_WELCOME_VERSION, v1::Welcome::kVersionFieldNumber);
  EXPECT_EQ(OCTAVO_RING_REFUSED_REASON, v1::Refused::kReasonFieldNumber);
  EXPECT_EQ(OCTAVO_RING_REFUSED_MESSAGE, v1::Refused::kMessageFieldNumber);
}

TEST_F(RingHeaderTest, ItPresentsATicket) {
  Listen();
  const auto grant = std::make_shared<MemoryOfARing>();
  const std::string nonce = Nonce(grant);
  char error[512] = "";
  auto peer = HandoffPeer::Silent(path_);
  const UniqueFd fd(octavo_ring_present(peer.fd(), nonce.c_str(), error, sizeof error));
  EXPECT_TRUE(fd) << error;
  EXPECT_EQ(grant->ticket, nonce);
  auto other = HandoffPeer::Silent(path_);
  EXPECT_EQ(octavo_ring_present(other.fd(), nonce.c_str(), error, sizeof error), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_STREQ(error, "refused: TICKET_USED: the ticket was presented before; it is good once");
  auto memory = HandoffPeer::Silent(path_);
  EXPECT_EQ(octavo_ring_present(memory.fd(), Nonce(std::make_shared<TextGrant>("")).c_str(), error,
                                sizeof error),
            -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_THAT(error, HasSubstr("refused: TICKET_KIND: "));
  // A refusal of the connection, and errors without room for words.
  auto greeted = HandoffPeer(path_);
  EXPECT_EQ(octavo_ring_present(greeted.fd(), "00", error, sizeof error), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_STREQ(error, "refused: PROTOCOL: a connection says Hello once");
  auto last = HandoffPeer::Silent(path_);
  EXPECT_EQ(octavo_ring_present(last.fd(), "00", nullptr, 0), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(RingHeaderTest, ItReadsFieldsAsProtobufDoes) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const auto below = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  for (int turn = 0; turn < 2000; ++turn) {
    v1::ServerMessage message;
    if (below(2) == 0) message.set_request(random());
    if (below(2) == 0) message.set_grant(~uint64_t{0} >> below(64));
    v1::Refused& refused = *message.mutable_refused();
    refused.set_code(-static_cast<int>(below(100)));
    refused.set_reason(std::string(below(40), 'R'));
    refused.set_message(std::string(below(3000), 'm'));
    for (size_t n = below(4); n > 0; --n) refused.add_values()->set_name(std::string(n, 'n'));
    const std::string bytes = message.SerializeAsString();
    octavo_ring_part body{}, part{};
    ASSERT_EQ(octavo_ring_field(PartOf(bytes), OCTAVO_RING_REFUSED, &body), 1);
    ASSERT_EQ(octavo_ring_field(body, OCTAVO_RING_REFUSED_MESSAGE, &part),
              refused.message().empty() ? 0 : 1);
    if (!refused.message().empty()) EXPECT_EQ(TextOf(part), refused.message());
    ASSERT_EQ(octavo_ring_field(PartOf(bytes), 1, &part), message.request() == 0 ? 0 : 1);
    if (message.request() != 0) EXPECT_EQ(part.value, message.request());
    EXPECT_EQ(octavo_ring_field(PartOf(bytes), OCTAVO_RING_RING, &part), 0);
    // Cut anywhere, it is no whole message, or one without its end.
    const std::string cut = bytes.substr(0, below(bytes.size()));
    if (v1::ServerMessage less; octavo_ring_field(PartOf(cut), OCTAVO_RING_REFUSED, &body) < 0)
      EXPECT_FALSE(less.ParseFromString(cut));
  }
  for (int turn = 0; turn < 20000; ++turn) {  // a sanitizer sees what is read beyond the end
    const size_t length = 1 + below(40);
    const auto bytes = std::make_unique<unsigned char[]>(length);
    for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<unsigned char>(below(256));
    octavo_ring_part part{};
    const octavo_ring_part all{.bytes = bytes.get(), .length = length, .value = 0};
    if (octavo_ring_field(all, static_cast<uint32_t>(1 + below(16)), &part) != 1) continue;
    EXPECT_GE(part.bytes, bytes.get());
    EXPECT_LE(part.bytes + part.length, bytes.get() + length);
  }
}

// A server that is none: whatever it says of the memory, nothing beyond it is written.
TEST_F(RingHeaderTest, MemoryWhosePartsLieBeyondItIsNoRing) {
  constexpr uint64_t kBytes = 5 * OCTAVO_RING_PAGE;
  const auto map = [&](const std::function<void(octavo_ring_facts*)>& change) {
    octavo_ring_facts facts{};
    facts.magic = OCTAVO_RING_MAGIC;
    facts.version = OCTAVO_RING_VERSION;
    facts.total_bytes = kBytes;
    facts.descriptor_offset = 3 * OCTAVO_RING_PAGE;
    facts.data_offset = 4 * OCTAVO_RING_PAGE;
    facts.slot_bytes = 1024;
    facts.slots = 4;
    facts.block_records = 64;
    facts.record_bytes = 16;
    change(&facts);
    const UniqueFd fd(::memfd_create("ring", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), kBytes), 0);
    EXPECT_EQ(::pwrite(fd.get(), &facts, sizeof facts, 0), static_cast<ssize_t>(sizeof facts));
    octavo_ring ring{};
    const int result = octavo_ring_map(&ring, fd.get(), nullptr, 0);
    if (result == 0) octavo_ring_close(&ring);
    return result;
  };
  EXPECT_EQ(map([](octavo_ring_facts*) {}), 0);
  for (const auto& [name, change] : std::map<std::string, std::function<void(octavo_ring_facts*)>>{
           {"a slot too many", [](auto* facts) { facts->slots = 5; }},
           {"slots whose bytes wrap",
            [](auto* facts) {
              facts->slots = 1U << 31;
              facts->block_records = facts->record_bytes = 1U << 31;
              facts->slot_bytes = uint64_t{1} << 62;
            }},
           {"descriptors that wrap",
            [](auto* facts) {
              facts->slots = 1;
              facts->descriptor_offset = ~uint64_t{63};
            }},
           {"descriptors in the server's page",
            [](auto* facts) { facts->descriptor_offset = 4096; }},
           {"descriptors between words", [](auto* facts) { facts->descriptor_offset += 4; }},
           {"data that wrap", [](auto* facts) { facts->data_offset = ~uint64_t{4095}; }}}) {
    EXPECT_EQ(map(change), -1) << name;
    EXPECT_EQ(errno, EPROTO) << name;
  }
}

}  // namespace
}  // namespace octavo::handoff
