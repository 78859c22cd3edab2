// Frames in shared memory: whole, in order and unchanged while the client has them, in memory that
// is bounded; and nothing is left of a client that has gone.

#include "server/exports/frame_feed.h"

#include <atomic>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/clock.h"
#include "server/handoff/fd_socket.h"
#include "tests/support/handoff_peer.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::exports {
namespace {

namespace wire = handoff::v1;
using octavo::testing::EndMessage;
using octavo::testing::HandoffPeer;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::PresentMessage;

constexpr int64_t kMiB = 1 << 20;

/// Counts what the feed says.
struct Sender final : FrameSender {
  void Begin() override { ++begun; }
  void HasRoom() override { ++rooms; }
  void Over() override { ++overs; }
  std::atomic<int> begun{0}, rooms{0}, overs{0};
};

/// Bytes that tell the frame and the place in it.
std::string Pattern(uint64_t frame, size_t size) {
  std::mt19937_64 random(frame);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() >> 32);
  return bytes;
}
model::Bytes BytesOf(const std::string& text) {
  const auto owner = std::make_shared<const std::string>(text);
  return {.owner = owner, .data = owner->data(), .size = static_cast<int64_t>(owner->size())};
}

/// What a client has mapped for the slots.
class Mappings {
 public:
  ~Mappings() {
    for (const auto& [slot, mapped] : by_slot_) ::munmap(mapped.at, mapped.bytes);
  }
  /// The data and the description of a frame.
  std::pair<std::string, std::string> Read(const HandoffPeer::Packet& packet) {
    const wire::FrameReady& ready = packet.message.frame_ready();
    if (!packet.fds.empty()) {
      void* const at =
          ::mmap(nullptr, ready.mapped_bytes(), PROT_READ, MAP_SHARED, packet.fds.front().get(), 0);
      EXPECT_NE(at, MAP_FAILED);
      if (const auto old = by_slot_.find(ready.slot()); old != by_slot_.end())
        ::munmap(old->second.at, old->second.bytes);
      by_slot_[ready.slot()] = {at, ready.mapped_bytes(), ready.memory()};
    }
    const Mapped& mapped = by_slot_.at(ready.slot());
    EXPECT_EQ(mapped.memory, ready.memory());
    EXPECT_EQ(mapped.bytes, ready.mapped_bytes());
    const auto* bytes = static_cast<const char*>(mapped.at);
    return {std::string(bytes, ready.byte_size()),
            std::string(bytes + ready.frame_offset(), ready.frame_bytes())};
  }

 private:
  struct Mapped {
    void* at = nullptr;
    size_t bytes = 0;
    uint64_t memory = 0;
  };
  std::map<uint32_t, Mapped> by_slot_;
};

wire::ClientMessage DoneMessage(uint64_t grant, uint32_t slot, uint64_t request = 0) {
  wire::ClientMessage message;
  message.set_grant(grant);
  message.set_request(request);
  message.mutable_done()->set_slot(slot);
  return message;
}

class FrameFeedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        socket_, handoff::FdSocket::Open({.path = folder_ / "socket", .group = ""}, &clock_));
    exports_.Start(socket_.get(), 1);
  }
  void TearDown() override {
    socket_->Stop();
    EXPECT_EQ(feeds_.Count().feeds, 0);
    EXPECT_EQ(feeds_.Count().memory_bytes, 0);
    EXPECT_EQ(OpenDescriptors(), descriptors_before_);
  }
  static ExportPeer PeerOf(const std::string& name, security::Role role = security::Role::kViewer) {
    ExportPeer peer;
    peer.local = true;
    peer.uid = ::getuid();
    peer.owner.name = name;
    peer.owner.role = role;
    return peer;
  }
  struct Open {
    std::shared_ptr<FrameFeed> feed;
    std::shared_ptr<Sender> sender;
    std::string ticket;
  };
  Open Make(uint32_t slots, const std::string& name = "anna") {
    Open open;
    auto feed = feeds_.Make(slots, PeerOf(name));
    EXPECT_THAT(feed, IsOk());
    open.feed = *feed;
    open.sender = std::make_shared<Sender>();
    open.feed->SetSender(open.sender);
    const auto ticket = feeds_.Issue(open.feed, PeerOf(name));
    EXPECT_THAT(ticket, IsOk());
    open.ticket = ticket->nonce;
    return open;
  }
  HandoffPeer Connect(Open& open, uint64_t* grant) {
    HandoffPeer peer(folder_ / "socket", wire::PURPOSE_FRAMES);
    const auto packet = peer.Ask(PresentMessage(open.ticket));
    EXPECT_TRUE(packet.message.has_frames_opened()) << packet.message.ShortDebugString();
    *grant = packet.message.grant();
    return peer;
  }
  static std::ptrdiff_t OpenDescriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  }

  const SystemClock clock_;
  const std::ptrdiff_t descriptors_before_ = OpenDescriptors() + 3;  // the socket's
  octavo::testing::TempFolder folder_;
  memory::QuotaBook quotas_;
  ExportStore exports_{{.devices = {}, .ledger = nullptr, .volumes = nullptr, .clock = &clock_}};
  FrameFeeds feeds_{&exports_, &quotas_, 64 * kMiB};
  std::unique_ptr<handoff::FdSocket> socket_;
};

TEST_F(FrameFeedTest, FramesAreWholeInOrderAndUnchangedWhileTheClientHasThem) {
  std::mt19937_64 random(octavo::testing::FreshSeed());
  constexpr uint64_t kFrames = 600;
  const auto slots = static_cast<uint32_t>(1 + random() % 6);
  Open open = Make(slots);
  uint64_t grant = 0;
  HandoffPeer peer = Connect(open, &grant);
  std::vector<size_t> sizes(kFrames);
  for (size_t& size : sizes) size = random() % 4 == 0 ? random() % 300'000 : random() % 3000;
  std::jthread sender([&] {
    for (uint64_t frame = 0; frame < kFrames;) {
      if (!open.feed->HasRoom()) {
        std::this_thread::yield();
        continue;
      }
      ASSERT_THAT(
          open.feed->Send(absl::StrCat("frame ", frame), BytesOf(Pattern(frame, sizes[frame]))),
          IsOk());
      ++frame;
    }
    open.feed->End(absl::OkStatus());
    open.feed->End(absl::InternalError("told once"));
  });
  Mappings mappings;
  std::deque<HandoffPeer::Packet> kept;  // that the client has
  std::deque<uint64_t> numbers;
  uint64_t next = 0;
  const auto check = [&](const HandoffPeer::Packet& packet, uint64_t frame) {
    const auto [data, about] = mappings.Read(packet);
    ASSERT_EQ(about, absl::StrCat("frame ", frame));
    ASSERT_EQ(data.size(), sizes[frame]);
    ASSERT_TRUE(data == Pattern(frame, sizes[frame])) << frame;
  };
  for (;;) {
    auto packet = peer.Receive();
    if (packet.message.has_frames_ended()) {
      EXPECT_FALSE(packet.message.frames_ended().has_why());
      break;
    }
    ASSERT_TRUE(packet.message.has_frame_ready()) << packet.message.ShortDebugString();
    ASSERT_NO_FATAL_FAILURE(check(packet, next));
    packet.fds.clear();
    kept.push_back(std::move(packet));
    numbers.push_back(next++);
    ASSERT_LE(kept.size(), slots);
    while (!kept.empty() && (kept.size() == slots || random() % 3 == 0)) {
      const size_t at = random() % kept.size();
      ASSERT_NO_FATAL_FAILURE(check(kept[at], numbers[at])) << "it has changed";
      ASSERT_TRUE(peer.Send(DoneMessage(grant, kept[at].message.frame_ready().slot())));
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
      numbers.erase(numbers.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  EXPECT_EQ(next, kFrames);
  EXPECT_EQ(feeds_.Count().frames, static_cast<int64_t>(kFrames));
  EXPECT_EQ(open.sender->begun, 1);
  EXPECT_TRUE(peer.Receive(0).message.body_case() == wire::ServerMessage::BODY_NOT_SET)
      << "a Done without a number has no answer";
  peer.Close();
  while (open.sender->overs == 0) std::this_thread::yield();
  EXPECT_THAT(open.feed->Send("x", {}), IsOk()) << "of a client that has gone";
  open = {};
}

TEST_F(FrameFeedTest, TheSlotThatCameBackLastIsTakenFirst) {
  Open open = Make(3);
  uint64_t grant = 0;
  HandoffPeer peer = Connect(open, &grant);
  Mappings mappings;
  for (int frame = 0; frame < 5; ++frame) {
    ASSERT_THAT(open.feed->Send("a", BytesOf("b")), IsOk());
    const auto packet = peer.Receive();
    EXPECT_EQ(packet.message.frame_ready().slot(), 0u);
    EXPECT_EQ(packet.fds.size(), frame == 0 ? 1u : 0u);
    EXPECT_TRUE(peer.Ask(DoneMessage(grant, 0, 1)).message.has_noted());
  }
  EXPECT_EQ(feeds_.Count().memory_bytes, 64 << 10) << "the other slots have no memory";
  ASSERT_THAT(open.feed->Send("a", BytesOf(std::string(70'000, 'x'))), IsOk());
  const auto packet = peer.Receive();
  EXPECT_EQ(packet.message.frame_ready().slot(), 0u);
  EXPECT_EQ(packet.message.frame_ready().memory(), 2u);
  EXPECT_EQ(feeds_.Count().memory_bytes, 128 << 10) << "the old memory has gone";
  // Nobody but the server writes it.
  ASSERT_EQ(packet.fds.size(), 1u);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, packet.fds[0].get(), 0),
            MAP_FAILED);
  const UniqueFd again(::open(absl::StrCat("/proc/self/fd/", packet.fds[0].get()).c_str(), O_RDWR));
  EXPECT_TRUE(!again || ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0) ==
                            MAP_FAILED);
  EXPECT_NE(::ftruncate(again ? again.get() : packet.fds[0].get(), 0), 0);
}

TEST_F(FrameFeedTest, TwoFeedsOfAServerSendSmallFramesAtOnce) {
  std::vector<Open> feeds;
  std::vector<HandoffPeer> peers;
  const auto send = [&](size_t i, size_t bytes) {  // the memory of slot 0 is made
    ASSERT_THAT(feeds[i].feed->Send("a", BytesOf(std::string(bytes, 'x'))), IsOk());
    ASSERT_TRUE(peers[i].Receive().message.has_frame_ready());
  };
  for (size_t i = 0; i < 3; ++i) {
    feeds.push_back(Make(1));
    EXPECT_FALSE(feeds[i].feed->SendsAtOnce(0)) << "no client is there";
    uint64_t grant = 0;
    peers.push_back(Connect(feeds[i], &grant));
    EXPECT_FALSE(feeds[i].feed->SendsAtOnce(0)) << "no memory is there";
    ASSERT_NO_FATAL_FAILURE(send(i, 100'000));
    EXPECT_FALSE(feeds[i].feed->SendsAtOnce(0)) << "the client has all slots";
    EXPECT_TRUE(peers[i].Ask(DoneMessage(grant, 0, 1)).message.has_noted());
  }
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(feeds[2].feed->SendsAtOnce(100'000)) << "those that ask have the places";
    EXPECT_TRUE(feeds[0].feed->SendsAtOnce(0));
    EXPECT_FALSE(feeds[1].feed->SendsAtOnce(0));
  }
  EXPECT_FALSE(feeds[0].feed->SendsAtOnce(128 << 10)) << "its memory is 128 KiB, with the rest";
  EXPECT_FALSE(feeds[0].feed->SendsAtOnce(kMiB));
  peers[0].Close();
  while (feeds[0].sender->overs == 0) std::this_thread::yield();
  EXPECT_FALSE(feeds[0].feed->SendsAtOnce(0));
  EXPECT_TRUE(feeds[1].feed->SendsAtOnce(0)) << "its place is free";
  for (HandoffPeer& peer : peers) peer.Close();
  for (Open& open : feeds) {
    while (open.sender->overs == 0) std::this_thread::yield();
  }
}

TEST_F(FrameFeedTest, DoneOfWhatTheClientDoesNotHaveIsRefused) {
  Open open = Make(2);
  uint64_t grant = 0;
  HandoffPeer peer = Connect(open, &grant);
  for (const uint32_t slot : {0u, 1u, 2u, 63u, 0xFFFFFFFFu})
    EXPECT_EQ(peer.Ask(DoneMessage(grant, slot)).reason(), "BAD_FIELD");
  ASSERT_THAT(open.feed->Send("a", BytesOf("b")), IsOk());
  ASSERT_TRUE(peer.Receive().message.has_frame_ready());
  EXPECT_EQ(peer.Ask(DoneMessage(grant, 1)).reason(), "BAD_FIELD");
  EXPECT_TRUE(peer.Ask(DoneMessage(grant, 0, 5)).message.has_noted());
  EXPECT_EQ(peer.Ask(DoneMessage(grant, 0, 6)).reason(), "BAD_FIELD") << "twice";
  EXPECT_EQ(open.sender->rooms, 1);
  ASSERT_THAT(open.feed->Send("a", BytesOf("b")), IsOk());
  ASSERT_THAT(open.feed->Send("a", BytesOf("b")), IsOk());
  EXPECT_FALSE(open.feed->HasRoom());
  EXPECT_THAT(open.feed->Send("a", BytesOf("b")),
              IsError(absl::StatusCode::kFailedPrecondition, "has all slots"));
}

TEST_F(FrameFeedTest, OnePrincipalGetsHalfOfTheMemoryAndAllOfThemAllOfIt) {
  Open anna = Make(8), berta = Make(8, "berta"), clara = Make(8, "clara");
  uint64_t grants[3];
  HandoffPeer peers[] = {Connect(anna, &grants[0]), Connect(berta, &grants[1]),
                         Connect(clara, &grants[2])};
  const model::Bytes large = BytesOf(std::string(15 * kMiB, 'x'));  // 16 MiB of memory
  ASSERT_THAT(anna.feed->Send("a", large), IsOk());
  ASSERT_THAT(anna.feed->Send("a", large), IsOk());
  const absl::Status refused = anna.feed->Send("a", large);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "anna has 32.0 MiB"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kOutOfMemory);
  ASSERT_THAT(berta.feed->Send("a", large), IsOk());
  ASSERT_THAT(berta.feed->Send("a", large), IsOk());
  EXPECT_EQ(feeds_.Count().memory_bytes, 64 * kMiB);
  EXPECT_THAT(clara.feed->Send("a", BytesOf("small")),
              IsError(absl::StatusCode::kResourceExhausted, "all clients have 64.0 MiB"));
  EXPECT_TRUE(clara.feed->HasRoom()) << "the slot is free again";
  // A slot that comes back and is too small gives its memory back before it asks for more.
  ASSERT_TRUE(peers[0].Receive().message.has_frame_ready());
  ASSERT_TRUE(peers[0].Ask(DoneMessage(grants[0], 0, 1)).message.has_frame_ready());
  ASSERT_TRUE(peers[0].Receive().message.has_noted());
  EXPECT_THAT(anna.feed->Send("a", BytesOf(std::string(17 * kMiB, 'x'))),
              IsError(absl::StatusCode::kResourceExhausted, "anna"));
  ASSERT_THAT(clara.feed->Send("a", BytesOf("small")), IsOk());
  peers[1].Close();
  while (berta.sender->overs == 0) std::this_thread::yield();
  EXPECT_LT(feeds_.Count().memory_bytes, 17 * kMiB);
}

TEST_F(FrameFeedTest, AfterTheEndOnlyWhatTheClientHasTakesMemory) {
  const std::ptrdiff_t before = OpenDescriptors();
  Open open = Make(3);
  uint64_t grant = 0;
  HandoffPeer peer = Connect(open, &grant);
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(open.feed->Send("a", BytesOf("b")), IsOk());
    ASSERT_TRUE(peer.Receive().message.has_frame_ready());
  }
  EXPECT_LE(OpenDescriptors(), before + 2) << "a descriptor is needed until it is sent";
  EXPECT_TRUE(peer.Ask(DoneMessage(grant, 1, 1)).message.has_noted());
  EXPECT_EQ(feeds_.Count().memory_bytes, 3 * (64 << 10));
  open.feed->End(absl::OkStatus());
  EXPECT_EQ(feeds_.Count().memory_bytes, 2 * (64 << 10));
  EXPECT_TRUE(peer.Receive().message.has_frames_ended());
  EXPECT_TRUE(peer.Ask(DoneMessage(grant, 0, 2)).message.has_noted());
  EXPECT_EQ(feeds_.Count().memory_bytes, 64 << 10);
  EXPECT_TRUE(peer.Ask(DoneMessage(grant, 2, 3)).message.has_noted());
  EXPECT_EQ(feeds_.Count().memory_bytes, 0);
}

TEST_F(FrameFeedTest, WhatIsNotAllowedIsRefused) {
  EXPECT_THAT(feeds_.Make(65, PeerOf("anna")),
              IsError(absl::StatusCode::kInvalidArgument, "slots: is 65; allowed 0 to 64"));
  ExportPeer far = PeerOf("anna");
  far.local = false;
  EXPECT_EQ(InfoOf(feeds_.Make(0, far).status()).reason, Reason::kExportRemote);
  memory::QuotaRules rules;
  rules.SetUsual(memory::QuotaKind::kWatches, 1);
  memory::QuotaBook strict(rules);
  FrameFeeds feeds(&exports_, &strict, kMiB);
  {
    ASSERT_OK_AND_ASSIGN(const auto first, feeds.Make(0, PeerOf("anna")));
    EXPECT_EQ(InfoOf(feeds.Make(0, PeerOf("anna")).status()).reason, Reason::kQuota);
  }
  EXPECT_THAT(feeds.Make(0, PeerOf("anna")), IsOk()) << "it is given back";
  std::vector<std::shared_ptr<FrameFeed>> many;
  while (many.size() < FrameFeeds::kMostFeeds) {
    ASSERT_OK_AND_ASSIGN(many.emplace_back(), feeds_.Make(0, PeerOf("anna")));
  }
  EXPECT_EQ(InfoOf(feeds_.Make(0, PeerOf("anna")).status()).reason, Reason::kBusy);
}

}  // namespace
}  // namespace octavo::exports
