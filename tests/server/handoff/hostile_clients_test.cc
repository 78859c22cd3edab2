// Clients of the hand-over socket that speak another version, or none: what they are told, what it
// costs them, and that the socket serves others afterwards.

#include <algorithm>
#include <cctype>
#include <chrono>
#include <netinet/in.h>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "gpu/math/scalar.h"
#include "tests/server/handoff/text_grant.h"
#include "tests/support/seed.h"

namespace octavo::handoff {
namespace {

using octavo::testing::EndMessage;
using octavo::testing::HandoffPeer;
using octavo::testing::HelloMessage;
using octavo::testing::IsError;
using octavo::testing::PresentMessage;
using octavo::testing::TakeMessage;
using ::testing::HasSubstr;
using testing::OpenDescriptors;
using testing::Settles;
using testing::TextGrant;

class HostileClientsTest : public testing::SocketTest {
 protected:
  /// The connection is refused with these words, and ends.
  void ExpectRefused(HandoffPeer& peer, const std::string& reason, const std::string& message) {
    const auto packet = peer.Receive();
    const v1::Refused& refused = packet.message.refused();
    EXPECT_EQ(refused.reason(), reason) << packet.message.ShortDebugString();
    EXPECT_THAT(refused.message(), HasSubstr(message));
    EXPECT_EQ(refused.versions().oldest(), kOldestVersion);
    EXPECT_EQ(refused.versions().newest(), kNewestVersion);
    EXPECT_TRUE(packet.fds.empty());
    EXPECT_TRUE(peer.Receive().ended);
  }
  void ExpectNothingLeft() {
    EXPECT_TRUE(Settles([&] { return socket_->Count().connections == 0; }));
    EXPECT_EQ(socket_->Count().grants, 0);
  }
};

// Groups in each other, all unknown.
std::string Nested(int depth) {
  std::string bytes;
  for (int i = 0; i < depth; ++i) bytes += "\xa3\x06";  // start of group 100
  for (int i = 0; i < depth; ++i) bytes += "\xa4\x06";
  return bytes;
}
const std::string kUnknownField = "\xa2\x06\x03yes";  // field 100, a text

TEST_F(HostileClientsTest, OlderAndNewerClients) {
  Listen();
  for (const auto& [oldest, newest] : {std::pair<uint32_t, uint32_t>{1, 1}, {1, 2}, {1, 4000000}}) {
    auto peer = HandoffPeer::Silent(path_);
    const auto welcome =
        peer.Ask(HelloMessage(v1::PURPOSE_MEMORY, oldest, newest)).message.welcome();
    EXPECT_EQ(welcome.version(), 1u) << newest;
    EXPECT_EQ(welcome.versions().newest(), kNewestVersion);
    auto grant = std::make_shared<TextGrant>("");
    EXPECT_EQ(peer.Ask(PresentMessage(Nonce(grant))).fds.size(), 1u) << newest;
  }
  struct Case {
    uint32_t oldest, newest;
    const char *reason, *message;
  };
  for (const Case& one :
       {Case{0, 0, "PROTOCOL_VERSION", "the client speaks versions 0 to 0 of the hand-over wire"},
        Case{2, 2, "PROTOCOL_VERSION", "versions 2 to 2 of the hand-over wire, this server 1 to 1"},
        Case{2, 9, "PROTOCOL_VERSION", "versions 2 to 9 of the hand-over wire, this server 1 to 1"},
        Case{0, 1, "BAD_FIELD", "versions.oldest: is 0; allowed 1 to 1"},
        Case{3, 2, "BAD_FIELD", "versions.oldest: is 3; allowed 1 to 2"}}) {
    auto peer = HandoffPeer::Silent(path_);
    auto hello = HelloMessage(v1::PURPOSE_MEMORY, one.oldest, one.newest);
    hello.set_request(7);
    ASSERT_TRUE(peer.Send(hello));
    ExpectRefused(peer, one.reason, one.message);
  }
  EXPECT_EQ(CommonVersion(HelloMessage(v1::PURPOSE_RING, 2, 2).hello().versions()).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(socket_->Count().refused["PROTOCOL_VERSION"], 3);
  ExpectService();
  ExpectNothingLeft();
}

TEST_F(HostileClientsTest, EachMalformedFirstMessage) {
  Listen();
  const std::string hello = HelloMessage().SerializeAsString();
  v1::ClientMessage no_versions = HelloMessage(), no_purpose = HelloMessage(),
                    future = HelloMessage();
  no_versions.mutable_hello()->clear_versions();
  no_purpose.mutable_hello()->clear_purpose();
  future.mutable_hello()->set_purpose(static_cast<v1::Purpose>(9));
  v1::ClientMessage release, forget;
  release.mutable_release()->set_name("exports/1");
  forget.mutable_forget()->add_memory("00");
  const std::string no_message = "the packet is no octavo.handoff.v1.ClientMessage",
                    no_hello = "the first message of a connection is a Hello";
  struct Case {
    std::string bytes, reason, message;
  };
  const std::vector<Case> cases = {
      {"{\"ticket\": \"0123456789abcdef0123456789abcdef\"}", "PROTOCOL", no_message},
      {"{", "PROTOCOL", no_message},
      {std::string(1, '\0'), "PROTOCOL", no_message},
      {std::string(1000, '\xff'), "PROTOCOL", no_message},
      {hello.substr(0, hello.size() / 2), "PROTOCOL", no_message},
      {hello.substr(0, hello.size() - 1), "PROTOCOL", no_message},
      {hello + "\x1a", "PROTOCOL", no_message},
      {hello + Nested(15000), "PROTOCOL", "at most 8 messages in each other"},
      {hello + Nested(kMostDepth + 1), "PROTOCOL", "at most 8 messages in each other"},
      {std::string(kMostMessageBytes + 1, ' '), "PROTOCOL", "longer than 65536 bytes"},
      {"\x22\x04\x0a\x02\xff\xfe", "PROTOCOL", no_message},  // Present.ticket is no UTF-8
      {kUnknownField, "PROTOCOL", no_hello},
      {PresentMessage("00").SerializeAsString(), "PROTOCOL", no_hello},
      {TakeMessage(1, "volumes/1").SerializeAsString(), "PROTOCOL", no_hello},
      {release.SerializeAsString(), "PROTOCOL", no_hello},
      {forget.SerializeAsString(), "PROTOCOL", no_hello},
      {EndMessage(1).SerializeAsString(), "PROTOCOL", no_hello},
      {no_versions.SerializeAsString(), "PROTOCOL_VERSION", "versions 0 to 0"},
      {no_purpose.SerializeAsString(), "BAD_FIELD", "purpose: is 0; allowed PURPOSE_MEMORY"},
      {future.SerializeAsString(), "BAD_FIELD", "purpose: is 9; allowed PURPOSE_MEMORY"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.bytes.substr(0, 60));
    auto peer = HandoffPeer::Silent(path_);
    ASSERT_TRUE(peer.SendBytes(one.bytes));
    ExpectRefused(peer, one.reason, one.message);
    ExpectService();
  }
  auto peer = HandoffPeer::Silent(path_);  // a Hello with a descriptor
  ASSERT_TRUE(peer.SendBytes(hello, peer.fd()));
  ExpectRefused(peer, "PROTOCOL", "clients send none");
  auto empty = HandoffPeer::Silent(path_);  // an empty packet
  ASSERT_TRUE(empty.SendBytes(""));
  EXPECT_TRUE(empty.Receive().ended);
  ExpectNothingLeft();
}

TEST_F(HostileClientsTest, AFirstMessageByteByByte) {
  Listen();
  for (int turn = 0; turn < 50; ++turn) {
    auto peer = HandoffPeer::Silent(path_);
    size_t sent = 0;
    for (const char byte : HelloMessage().SerializeAsString())
      sent += peer.SendBytes(std::string(1, byte)) ? 1 : 0;  // later ones may find it closed
    EXPECT_GE(sent, 1u);
    ExpectRefused(peer, "PROTOCOL", "the packet is no");  // not ECONNRESET, whatever waited unread
  }
  ExpectService();
  ExpectNothingLeft();
}

TEST_F(HostileClientsTest, AClientThatSaysNothingHoldsNoSlot) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ASSERT_GE(limit.rlim_cur, 2 * FdSocket::kMostConnections + 100);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  Listen();
  const size_t before = OpenDescriptors();
  std::vector<HandoffPeer> peers;
  peers.reserve(FdSocket::kMostConnections);
  const auto connected = [&] { return static_cast<size_t>(socket_->Count().connections); };
  while (peers.size() < FdSocket::kMostConnections) {
    peers.push_back(HandoffPeer::Silent(path_));
    ASSERT_TRUE(peers.back().connected());
    ASSERT_TRUE(Settles([&] { return connected() == peers.size(); }));
    clock_.Advance(0.001);
  }
  // A client that speaks takes the place of the one that has been silent longest.
  auto grant = std::make_shared<TextGrant>("");
  HandoffPeer speaks(path_);
  ASSERT_TRUE(speaks.connected());
  EXPECT_EQ(speaks.Ask(PresentMessage(Nonce(grant))).fds.size(), 1u);
  EXPECT_EQ(connected(), FdSocket::kMostConnections);
  ExpectRefused(peers[0], "CONNECTIONS", "yours had no grant");
  EXPECT_EQ(peers[1].Ask(HelloMessage()).message.welcome().version(), 1u);
  // So does one after those have said Hello: without a grant, that is worth no more, ...
  for (size_t i = 2; i < peers.size(); ++i)
    ASSERT_EQ(peers[i].Ask(HelloMessage()).message.welcome().version(), 1u);
  auto late = HandoffPeer::Silent(path_);
  ASSERT_TRUE(late.connected());
  ExpectRefused(peers[1], "CONNECTIONS", "there are 512 connections");
  EXPECT_EQ(connected(), FdSocket::kMostConnections);
  EXPECT_EQ(late.Ask(HelloMessage()).message.welcome().version(), 1u);
  EXPECT_EQ(grant->ends(), 0);
  // ... and the time for a ticket ends.
  clock_.Advance(10.1);
  for (size_t i = 2; i < peers.size(); ++i) EXPECT_TRUE(peers[i].Receive().ended);
  EXPECT_TRUE(Settles([&] { return connected() == 1; }));
  EXPECT_EQ(grant->ends(), 0);
  peers.clear();
  ExpectService();
  speaks.Close();
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  ExpectNothingLeft();
  late.Close();
  grant = nullptr;
  (void)Settles([&] { return OpenDescriptors() == before; });
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(HostileClientsTest, ASilentClientTimesOut) {
  Listen();
  auto silent = HandoffPeer::Silent(path_);
  ASSERT_TRUE(Settles([&] { return socket_->Count().connections == 1; }));
  clock_.Advance(9.9);
  for (int i = 0; i < 3; ++i) ExpectService();  // the socket looks after its connections meanwhile
  EXPECT_GE(socket_->Count().connections, 1);
  EXPECT_FALSE(silent.Receive(0).ended);
  clock_.Advance(0.2);
  EXPECT_TRUE(silent.Receive().ended);
  ExpectNothingLeft();
}

TEST_F(HostileClientsTest, DescriptorsWhereNoneBelong) {
  Listen();
  auto grant = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(grant);
  HandoffPeer peer(path_);
  UniqueFd file(::memfd_create("theirs", MFD_CLOEXEC));
  const size_t before = OpenDescriptors();
  EXPECT_EQ(peer.Ask(PresentMessage(nonce), file.get()).reason(), "PROTOCOL");
  const auto granted = peer.Ask(PresentMessage(nonce));  // the ticket was not used up
  ASSERT_EQ(granted.fds.size(), 1u);
  const uint64_t number = granted.message.grant();
  for (int i = 0; i < 100; ++i) {
    auto take = TakeMessage(number, "hello");
    take.set_request(11);
    const auto refused = peer.Ask(take, file.get());
    EXPECT_EQ(refused.reason(), "PROTOCOL");
    EXPECT_EQ(refused.message.request(), 11u);
    EXPECT_THAT(refused.message.refused().message(), HasSubstr("clients send none"));
  }
  EXPECT_EQ(peer.Ask(EndMessage(number), file.get()).reason(), "PROTOCOL");
  EXPECT_EQ(grant->ends(), 0);
  EXPECT_EQ(peer.Ask(TakeMessage(number, "hello")).message.exported().resource(), "hello");
  EXPECT_EQ(OpenDescriptors(), before + 1);  // the one that was granted
}

// A connection with SO_LINGER and data that its peer does not take: its close waits.
TEST_F(HostileClientsTest, ADescriptorWhoseCloseWaitsDelaysNobody) {
  Listen();
  const auto lingering = [](UniqueFd* taker) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size);
    *taker = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string data(1 << 16, 'x');
    while (::send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL) > 0) continue;
    const linger wait{.l_onoff = 1, .l_linger = 60};
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);
    return fd;
  };
  for (const v1::Purpose purpose : {v1::PURPOSE_IMPORT, v1::PURPOSE_MEMORY}) {
    UniqueFd taker, fd = lingering(&taker);
    HandoffPeer peer(path_, purpose);
    ASSERT_TRUE(peer.Send(PresentMessage("00"), fd.get()));
    // The server's is the last reference before it reads the packet, or it is soon after. The close
    // of ours would wait, too, if it were: another thread does it.
    std::thread closer([&] { const UniqueFd gone = std::move(fd); });
    EXPECT_EQ(peer.Receive().reason(),
              purpose == v1::PURPOSE_IMPORT ? "TICKET_UNKNOWN" : "PROTOCOL");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) ExpectService();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    taker = UniqueFd();  // the connection is reset: every close ends
    closer.join();
  }
}

TEST_F(HostileClientsTest, WhatIsUnknownIsIgnoredOrRefused) {
  Listen();
  auto peer = HandoffPeer::Silent(path_);
  // Unknown fields, at each level.
  auto hello = HelloMessage();
  const std::string inner = hello.hello().SerializeAsString() + kUnknownField;
  ASSERT_TRUE(peer.SendBytes(
      absl::StrCat("\x1a", std::string(1, static_cast<char>(inner.size())), inner, kUnknownField)));
  EXPECT_EQ(peer.Receive().message.welcome().version(), 1u);
  auto grant = std::make_shared<TextGrant>("");
  ASSERT_TRUE(peer.SendBytes(PresentMessage(Nonce(grant)).SerializeAsString() + kUnknownField +
                             Nested(kMostDepth - 2)));
  const auto granted = peer.Receive();
  EXPECT_EQ(granted.fds.size(), 1u) << granted.message.ShortDebugString();
  // A kind of message that this server does not know, with and without a grant.
  v1::ClientMessage number;
  number.set_grant(granted.message.grant());
  number.set_request(8);
  for (const std::string& before : {std::string(), number.SerializeAsString()}) {
    ASSERT_TRUE(peer.SendBytes(before + kUnknownField));
    const auto refused = peer.Receive();
    EXPECT_EQ(refused.reason(), "PROTOCOL");
    EXPECT_EQ(refused.message.request(), before.empty() ? 0u : 8u);
    EXPECT_EQ(refused.message.refused().message(),
              "the message says nothing that this server knows");
  }
  EXPECT_EQ(peer.Ask(HelloMessage()).message.refused().message(), "a connection says Hello once");
  // What cannot be read changes nothing either.
  for (const std::string& bytes :
       {std::string("{}"), Nested(64), std::string(kMostMessageBytes + 1, '\0')}) {
    ASSERT_TRUE(peer.SendBytes(bytes));
    EXPECT_EQ(peer.Receive().reason(), "PROTOCOL");
  }
  EXPECT_EQ(grant->ends(), 0);
  EXPECT_EQ(peer.Ask(TakeMessage(granted.message.grant(), "hello")).message.exported().resource(),
            "hello");
}

// Each repeated, text and bytes field of a client's messages has a bound, and it holds.
TEST_F(HostileClientsTest, EveryFieldIsBounded) {
  using google::protobuf::FieldDescriptor;
  std::map<std::string, const FieldDescriptor*> unbounded;
  const auto* body = v1::ClientMessage::descriptor()->FindOneofByName("body");
  std::vector<const google::protobuf::Descriptor*> todo = {v1::ClientMessage::descriptor()};
  while (!todo.empty()) {
    const auto* message = todo.back();
    todo.pop_back();
    for (int i = 0; i < message->field_count(); ++i) {
      const auto* field = message->field(i);
      if (field->message_type() != nullptr) todo.push_back(field->message_type());
      if (field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
        unbounded[std::string(absl::StripPrefix(field->full_name(), "octavo.handoff.v1."))] = field;
    }
  }
  ASSERT_GE(unbounded.size(), 6u);
  Listen();
  for (const FieldBound& bound : FieldBounds()) {
    SCOPED_TRACE(bound.field);
    const auto it = unbounded.find(bound.field);
    ASSERT_NE(it, unbounded.end()) << "there is no such field";
    const FieldDescriptor* field = it->second;
    // A message with the field, filled.
    const auto filled = [&](int count, size_t bytes) {
      v1::ClientMessage message;
      for (int i = 0; i < body->field_count(); ++i) {
        if (body->field(i)->message_type() != field->containing_type()) continue;
        auto* part = message.GetReflection()->MutableMessage(&message, body->field(i));
        const auto* reflection = part->GetReflection();
        if (!field->is_repeated()) reflection->SetString(part, field, std::string(bytes, 'a'));
        for (int n = 0; field->is_repeated() && n < count; ++n)
          reflection->AddString(part, field, std::string(bytes, 'a'));
      }
      EXPECT_NE(message.body_case(), v1::ClientMessage::BODY_NOT_SET);
      return message;
    };
    EXPECT_THAT(CheckBounds(filled(bound.count, bound.bytes)), octavo::testing::IsOk());
    EXPECT_THAT(CheckBounds(filled(std::max(bound.count, 1), bound.bytes + 1)),
                IsError(absl::StatusCode::kInvalidArgument,
                        absl::StrCat(field->name(), field->is_repeated() ? "[0]" : "", ": has ",
                                     bound.bytes + 1, " bytes; allowed ", bound.bytes)));
    HandoffPeer peer(path_);  // and over the wire
    EXPECT_EQ(peer.Ask(filled(std::max(bound.count, 1), bound.bytes + 1)).reason(), "BAD_FIELD");
    EXPECT_NE(peer.Ask(filled(bound.count, bound.bytes)).reason(), "BAD_FIELD");
    if (field->is_repeated()) {
      EXPECT_THAT(CheckBounds(filled(bound.count + 1, 1)),
                  IsError(absl::StatusCode::kInvalidArgument,
                          absl::StrCat(field->name(), ": has ", bound.count + 1,
                                       " entries; allowed ", bound.count)));
    }
    unbounded.erase(it);
  }
  for (const auto& [name, field] : unbounded) ADD_FAILURE() << name << " has no bound";
}

TEST_F(HostileClientsTest, ARefusalIsBoundedAndWhole) {
  std::string umlauts;
  for (int i = 0; i < 5000; ++i) umlauts += "ü";
  absl::Status status = WithInfo(absl::InvalidArgumentError("x" + umlauts),
                                 {.reason = Reason::kBadField, .field = umlauts, .numbers = {}});
  ErrorInfo info = InfoOf(status);
  for (int i = 0; i < 40; ++i) info.numbers.emplace_back(umlauts, umlauts);
  v1::ServerMessage message;
  *message.mutable_refused() = RefusedOf(WithInfo(status, info));
  message.mutable_refused()->mutable_versions()->set_newest(kNewestVersion);
  const std::string bytes = message.SerializeAsString();
  EXPECT_LE(bytes.size(), 8000u);
  v1::ServerMessage read;
  ASSERT_TRUE(read.ParseFromString(bytes)) << "whole characters";
  EXPECT_EQ(read.refused().message().size(), 2047u);
  EXPECT_EQ(read.refused().code(), 3);
}

// Bytes at random, and messages that are changed at random, on connections that have said Hello and
// on others. Whatever comes, the socket serves the next client, and nothing is left.
TEST_F(HostileClientsTest, RandomBytes) {
  Listen();
  std::mt19937 random(octavo::testing::FreshSeed());
  const auto below = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  UniqueFd file(::memfd_create("theirs", MFD_CLOEXEC));
  const size_t before = OpenDescriptors();
  std::vector<std::shared_ptr<TextGrant>> grants;
  for (int connection = 0; connection < 200; ++connection) {
    HandoffPeer peer = below(2) == 0 ? HandoffPeer::Silent(path_) : HandoffPeer(path_);
    ASSERT_TRUE(peer.connected());
    grants.push_back(std::make_shared<TextGrant>(""));
    const std::string nonce = Nonce(grants.back());
    for (int packet = 0; packet < 20; ++packet) {
      std::string bytes;
      switch (below(7)) {
        case 0:
          bytes.resize(1 + below(300));
          for (char& byte : bytes) byte = static_cast<char>(below(256));
          break;
        case 1:
          bytes.resize(1 + below(2 * kMostMessageBytes));
          for (char& byte : bytes) byte = static_cast<char>(below(256));
          break;
        case 2:
          bytes = HelloMessage(static_cast<v1::Purpose>(below(8)), static_cast<uint32_t>(below(3)),
                               static_cast<uint32_t>(below(3)))
                      .SerializeAsString();
          break;
        case 3: bytes = PresentMessage(nonce, {"ab", "cd"}).SerializeAsString(); break;
        case 4: bytes = TakeMessage(below(2000), "volumes/1").SerializeAsString(); break;
        case 5: bytes = EndMessage(below(2000)).SerializeAsString(); break;
        default: bytes = Nested(static_cast<int>(1 + below(100)));
      }
      for (size_t flips = below(4); flips > 0; --flips)
        bytes[below(bytes.size())] = static_cast<char>(below(256));
      if (below(4) == 0) bytes.resize(1 + below(bytes.size()));
      if (!peer.SendBytes(bytes, below(5) == 0 ? file.get() : -1)) break;  // it was refused
      // Answers are taken now and then: a client that never reads is cut.
      if (below(3) == 0) (void)peer.Receive(static_cast<int>(below(3)));
    }
  }
  ExpectService();
  ExpectNothingLeft();
  clock_.Advance(31);  // tickets that were not presented
  for (const auto& grant : grants) (void)grant->WaitForEnd();
  for (const auto& grant : grants) EXPECT_EQ(grant->ends(), 1);
  grants.clear();
  (void)Settles([&] { return OpenDescriptors() == before; });
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(WireTypes, ElementTypesHaveOurNumbersAndNames) {
  for (int number = 1; number <= kMostScalar; ++number) {
    std::string name = NameOf(static_cast<Scalar>(number));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    EXPECT_EQ(v1::Dtype_Name(static_cast<v1::Dtype>(number)), "DTYPE_" + name);
  }
  EXPECT_EQ(v1::Dtype_MAX, kMostScalar);
}

}  // namespace
}  // namespace octavo::handoff
