#include "server/handoff/fd_socket.h"

#include <chrono>
#include <filesystem>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"
#include "tests/server/handoff/text_grant.h"

namespace octavo::handoff {
namespace {

using octavo::testing::EndMessage;
using octavo::testing::HandoffPeer;
using octavo::testing::IsError;
using octavo::testing::PresentMessage;
using octavo::testing::TakeMessage;
using testing::OpenDescriptors;
using testing::Settles;
using testing::TextGrant;

class FdSocketTest : public testing::SocketTest {};

TEST_F(FdSocketTest, ATicketBringsADescriptorOnce) {
  Listen();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  auto grant = std::make_shared<TextGrant>("a volume");
  ASSERT_OK_AND_ASSIGN(const Ticket ticket, socket_->Issue(grant, ::getuid()));
  EXPECT_EQ(ticket.nonce.size(), 32u);
  EXPECT_EQ(ticket.path, path_);
  EXPECT_EQ(ticket.expires_seconds, 30);
  HandoffPeer peer(path_);
  auto present = PresentMessage(ticket.nonce);
  present.set_request(4711);
  auto packet = peer.Ask(present);
  ASSERT_EQ(packet.fds.size(), 1u) << packet.message.ShortDebugString();
  EXPECT_EQ(packet.message.exported().name(), "exports/text");
  EXPECT_EQ(packet.message.request(), 4711u);
  EXPECT_NE(packet.message.grant(), 0u);
  EXPECT_EQ(grant->peer().uid, ::getuid());
  EXPECT_EQ(grant->peer().pid, ::getpid());
  char text[8];
  ASSERT_EQ(::pread(packet.fds[0].get(), text, 8, 0), 8);
  EXPECT_EQ(std::string(text, 8), "a volume");
  // The socket refuses a second use, by the same or by another connection.
  EXPECT_EQ(peer.Ask(PresentMessage(ticket.nonce)).reason(), "TICKET_USED");
  HandoffPeer other(path_);
  auto refused = other.Ask(PresentMessage(ticket.nonce));
  EXPECT_EQ(refused.reason(), "TICKET_USED");
  EXPECT_EQ(refused.message.refused().code(),
            static_cast<int>(absl::StatusCode::kPermissionDenied));
  EXPECT_FALSE(refused.message.refused().has_versions()) << "the connection goes on";
  EXPECT_TRUE(refused.fds.empty());
  EXPECT_EQ(socket_->Count().refused["TICKET_USED"], 2);
  EXPECT_EQ(socket_->Count().grants, 1);
  peer.Close();
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
}

TEST_F(FdSocketTest, WhatIsNoTicketIsRefused) {
  Listen();
  HandoffPeer peer(path_);
  EXPECT_EQ(peer.Ask(PresentMessage(std::string(32, '0'))).reason(), "TICKET_UNKNOWN");
  EXPECT_EQ(peer.Ask(PresentMessage("")).reason(), "TICKET_UNKNOWN");
  EXPECT_EQ(peer.Ask(TakeMessage(1, "volumes/1")).reason(), "NO_GRANT");
  EXPECT_EQ(peer.Ask(EndMessage(0)).reason(), "NO_GRANT");
  EXPECT_EQ(peer.Ask(v1::ClientMessage()).ended, true) << "an empty packet is the end";
}

TEST_F(FdSocketTest, ATicketForSomethingElseStaysValid) {
  Listen();
  auto memory = std::make_shared<TextGrant>(""),
       ring = std::make_shared<TextGrant>("", v1::PURPOSE_RING),
       other = std::make_shared<TextGrant>("", v1::PURPOSE_FEED);
  const std::string of_memory = Nonce(memory), of_ring = Nonce(ring),
                    of_other = Nonce(other, ::getuid() + 1);
  HandoffPeer producer(path_, v1::PURPOSE_RING), mapper(path_);
  const auto refused = producer.Ask(PresentMessage(of_memory));
  EXPECT_EQ(refused.reason(), "TICKET_KIND");
  EXPECT_EQ(refused.message.refused().code(),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(refused.message.refused().message(),
            "the ticket is for PURPOSE_MEMORY, the connection for PURPOSE_RING");
  EXPECT_EQ(mapper.Ask(PresentMessage(of_ring)).reason(), "TICKET_KIND");
  EXPECT_EQ(memory->ends() + ring->ends(), 0);
  // Another user is not told what the ticket is for.
  EXPECT_EQ(mapper.Ask(PresentMessage(of_other)).reason(), "WRONG_PEER");
  EXPECT_EQ(producer.Ask(PresentMessage(of_ring)).fds.size(), 1u);
  EXPECT_EQ(mapper.Ask(PresentMessage(of_memory)).fds.size(), 1u);
  EXPECT_EQ(socket_->Count().refused["TICKET_KIND"], 2);
}

TEST_F(FdSocketTest, ATicketExpires) {
  Listen();
  auto grant = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(grant);
  clock_.Advance(29.9);
  EXPECT_EQ(socket_->Count().waiting, 1);
  clock_.Advance(0.2);
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kExpired);
  HandoffPeer peer(path_);
  EXPECT_EQ(peer.Ask(PresentMessage(nonce)).reason(), "TICKET_EXPIRED");
  EXPECT_EQ(socket_->Count().waiting, 0);
}

TEST_F(FdSocketTest, AnotherUsersTicketIsRefusedAndBurnt) {
  Listen();
  auto grant = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(grant, ::getuid() + 1);
  HandoffPeer peer(path_);
  auto refused = peer.Ask(PresentMessage(nonce));
  EXPECT_EQ(refused.reason(), "WRONG_PEER");
  EXPECT_TRUE(refused.fds.empty());
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kRefused);
  EXPECT_EQ(peer.Ask(PresentMessage(nonce)).reason(), "TICKET_USED");
}

TEST_F(FdSocketTest, SeveralGrantsShareAConnection) {
  Listen();
  auto one = std::make_shared<TextGrant>("1"), two = std::make_shared<TextGrant>("2"),
       bad = std::make_shared<TextGrant>("3");
  HandoffPeer peer(path_);
  const uint64_t first = peer.Ask(PresentMessage(Nonce(one))).message.grant(),
                 second = peer.Ask(PresentMessage(Nonce(two, std::nullopt))).message.grant();
  EXPECT_NE(first, second);
  EXPECT_EQ(peer.Ask(PresentMessage(Nonce(bad), {"fail"})).message.refused().message(),
            "it was told to");
  EXPECT_EQ(bad->WaitForEnd(), GrantEnd::kRefused);
  EXPECT_EQ(peer.Ask(TakeMessage(first, "hello")).message.exported().resource(), "hello");
  auto message = TakeMessage(first, "bad");
  message.set_request(5);
  const auto error = peer.Ask(message).message;
  EXPECT_EQ(error.refused().field(), "bad");
  EXPECT_EQ(error.refused().reason(), "BAD_FIELD");
  EXPECT_EQ(error.grant(), first);
  EXPECT_EQ(error.request(), 5u);
  // Unsolicited messages, from any thread.
  v1::ServerMessage revoked;
  revoked.mutable_revoked()->set_name("exports/1");
  ASSERT_TRUE(two->link()->Send(revoked));
  const auto told = peer.Receive().message;
  EXPECT_EQ(told.revoked().name(), "exports/1");
  EXPECT_EQ(told.grant(), second);
  EXPECT_EQ(told.request(), 0u);
  EXPECT_TRUE(peer.Ask(EndMessage(first)).message.has_ended());
  EXPECT_EQ(one->WaitForEnd(), GrantEnd::kReleased);
  EXPECT_EQ(peer.Ask(EndMessage(first)).reason(),
            "NO_GRANT");  // a second call does no harm
  EXPECT_EQ(one->ends(), 1);
  EXPECT_EQ(two->ends(), 0);
  two->link()->Cut();
  EXPECT_EQ(two->WaitForEnd(), GrantEnd::kHungUp);
  EXPECT_TRUE(peer.Receive().ended);
}

TEST_F(FdSocketTest, AClientThatIsKilledHangsUp) {
  Listen();
  auto grant = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(grant);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    HandoffPeer peer(path_);
    const char done = peer.Ask(PresentMessage(nonce)).fds.size() == 1 ? 'y' : 'n';
    [[maybe_unused]] const ssize_t ignored = ::write(pipe[1], &done, 1);
    ::pause();
    ::_exit(0);
  }
  char done = 0;
  ASSERT_EQ(::read(pipe[0], &done, 1), 1);
  EXPECT_EQ(done, 'y');
  EXPECT_EQ(grant->ends(), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(FdSocketTest, AClientThatDoesNotReadIsCut) {
  Listen();
  auto grant = std::make_shared<TextGrant>("");
  HandoffPeer peer(path_);
  ASSERT_EQ(peer.Ask(PresentMessage(Nonce(grant))).fds.size(), 1u);
  const auto link = grant->link();
  int sent = 0;
  v1::ServerMessage message;
  message.mutable_released()->set_name(std::string(4000, 'x'));
  while (link->Send(message)) ASSERT_LT(++sent, 100000);
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  EXPECT_FALSE(link->Send({}));
}

TEST_F(FdSocketTest, AConnectionWithoutAGrantEnds) {
  Listen();
  HandoffPeer peer(path_);
  EXPECT_EQ(peer.Ask(PresentMessage("")).reason(), "TICKET_UNKNOWN");
  clock_.Advance(10.1);
  EXPECT_TRUE(peer.Receive().ended);
}

// An exception, as for lack of memory, costs the connection at which it happens, and no other one.
TEST_F(FdSocketTest, WhatBreaksOffEndsItsConnectionOnly) {
  Listen();
  auto kept = std::make_shared<TextGrant>("kept"), lost = std::make_shared<TextGrant>("lost");
  HandoffPeer keeper(path_), loser(path_);
  ASSERT_EQ(keeper.Ask(PresentMessage(Nonce(kept))).fds.size(), 1u);
  ASSERT_EQ(loser.Ask(PresentMessage(Nonce(lost))).fds.size(), 1u);
  ArmFailpoint("handoff_read:throw=bad_alloc");
  ASSERT_TRUE(loser.SendBytes(EndMessage(1).SerializeAsString()));
  EXPECT_EQ(lost->WaitForEnd(), GrantEnd::kHungUp);
  EXPECT_FALSE(FailpointArmed());
  EXPECT_EQ(kept->ends(), 0);
  ArmFailpoint("handoff_accept:throw=bad_alloc");
  ExpectService();  // the listener is ready again
  EXPECT_FALSE(FailpointArmed());
  ExpectService();
  EXPECT_EQ(kept->ends(), 0);
}

TEST_F(FdSocketTest, StopEndsEverything) {
  Listen();
  auto waiting = std::make_shared<TextGrant>(""), open = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(waiting);
  HandoffPeer peer(path_);
  ASSERT_EQ(peer.Ask(PresentMessage(Nonce(open))).fds.size(), 1u);
  socket_->Stop();
  EXPECT_EQ(waiting->WaitForEnd(), GrantEnd::kStopped);
  EXPECT_EQ(open->WaitForEnd(), GrantEnd::kStopped);
  EXPECT_TRUE(peer.Receive().ended);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THAT(socket_->Issue(open, {}), IsError(absl::StatusCode::kUnavailable, "stops"));
}

TEST_F(FdSocketTest, APrincipalHasHalfOfTheTickets) {
  Listen();
  const auto grant = [] { return std::make_shared<TextGrant>("x"); };
  std::string nonce;
  for (size_t i = 0; i < FdSocket::kMostTicketsOfOne; ++i) {
    ASSERT_OK_AND_ASSIGN(const Ticket ticket, socket_->Issue(grant(), {}, {.payer = "ada"}));
    nonce = ticket.nonce;
  }
  const absl::Status refused = socket_->Issue(grant(), {}, {.payer = "ada"}).status();
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted,
                               "2048 tickets of ada wait to be presented; allowed to one principal "
                               "is half of 4096"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kTickets);
  EXPECT_THAT(socket_->Issue(grant(), {}, {.payer = "bob"}), octavo::testing::IsOk());
  EXPECT_THAT(socket_->Issue(grant(), {}), octavo::testing::IsOk()) << "an admin";
  // A ticket that is presented gives its place back; so do those that expire.
  HandoffPeer peer(path_);
  ASSERT_EQ(peer.Ask(PresentMessage(nonce)).fds.size(), 1u);
  EXPECT_THAT(socket_->Issue(grant(), {}, {.payer = "ada"}), octavo::testing::IsOk());
  EXPECT_FALSE(socket_->Issue(grant(), {}, {.payer = "ada"}).ok());
  clock_.Advance(31);
  ASSERT_TRUE(Settles([&] { return socket_->Count().waiting == 0; }));
  EXPECT_THAT(socket_->Issue(grant(), {}, {.payer = "ada"}), octavo::testing::IsOk());
}

TEST_F(FdSocketTest, WhoeverMayNotGoOnLosesTicketsAndConnections) {
  Mutex mutex;
  std::set<std::string> revoked;
  std::vector<std::string> told;
  Listen({.why_not = [&](const Holder& holder) -> std::string {
            MutexLock lock(mutex);
            return revoked.contains(holder.principal + "/" + holder.project)
                       ? "no token of " + holder.principal + " is valid any more"
                       : "";
          },
          .refused =
              [&](const Peer& peer, const absl::Status& why) {
                MutexLock lock(mutex);
                told.push_back(std::to_string(peer.uid) + " " + std::string(why.message()));
              }});
  const auto issue = [&](const std::shared_ptr<Grant>& grant, const std::string& name,
                         const std::string& project) {
    auto ticket = socket_->Issue(grant, ::getuid(), {.principal = name, .project = project});
    EXPECT_THAT(ticket, octavo::testing::IsOk());
    return ticket->nonce;
  };
  const auto grant = [] { return std::make_shared<TextGrant>("x"); };
  const auto open = grant(), waiting = grant(), other = grant(), nobodys = grant();
  HandoffPeer bob(path_), others(path_), late(path_);
  ASSERT_EQ(bob.Ask(PresentMessage(issue(open, "bob", "lab"))).fds.size(), 1u);
  ASSERT_EQ(others.Ask(PresentMessage(issue(other, "bob", "clinic"))).fds.size(), 1u);
  ASSERT_EQ(others.Ask(PresentMessage(Nonce(nobodys))).fds.size(), 1u);
  const std::string nonce = issue(waiting, "bob", "lab");
  {
    MutexLock lock(mutex);
    revoked.insert("bob/lab");
  }
  const auto refused = late.Ask(PresentMessage(nonce));
  EXPECT_EQ(refused.reason(), "BAD_TOKEN");
  EXPECT_TRUE(refused.fds.empty());
  EXPECT_EQ(waiting->WaitForEnd(), GrantEnd::kRefused);
  clock_.Advance(1);
  const auto last = bob.Receive();
  EXPECT_EQ(last.reason(), "BAD_TOKEN") << last.message.ShortDebugString();
  EXPECT_EQ(open->WaitForEnd(), GrantEnd::kHungUp);
  EXPECT_TRUE(bob.Receive().ended);
  EXPECT_EQ(others.Ask(PresentMessage("")).reason(), "TICKET_UNKNOWN") << "it goes on";
  EXPECT_EQ(socket_->Count().grants, 2);
  MutexLock lock(mutex);
  const std::string us = std::to_string(::getuid()) + " ";
  EXPECT_THAT(told, ::testing::ElementsAre(us + "no token of bob is valid any more",
                                           us + "no token of bob is valid any more",
                                           us + "no such ticket"));
}

TEST_F(FdSocketTest, AThousandHandOversLeaveNothingBehind) {
  Listen();
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 1000; ++i) {
    auto grant = std::make_shared<TextGrant>("");
    HandoffPeer peer(path_);
    ASSERT_EQ(peer.Ask(PresentMessage(Nonce(grant))).fds.size(), 1u);
    peer.Close();
    ASSERT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  }
  EXPECT_TRUE(Settles([&] { return OpenDescriptors() == before; }));
  const auto counts = socket_->Count();
  EXPECT_EQ(counts.grants, 0);
  EXPECT_EQ(counts.waiting, 0);
}

TEST_F(FdSocketTest, PathsAndGroupsThatCannotBeHad) {
  Listen();
  EXPECT_THAT(FdSocket::Open({.path = path_, .group = ""}, &clock_),
              IsError(absl::StatusCode::kAlreadyExists, "another server answers"));
  EXPECT_THAT(FdSocket::Open({.path = std::string(200, 'x'), .group = ""}, &clock_),
              IsError(absl::StatusCode::kInvalidArgument, "allowed 1 to 107"));
  EXPECT_THAT(FdSocket::Open({.path = folder_.path() + "/none/x", .group = ""}, &clock_),
              IsError(absl::StatusCode::kFailedPrecondition, "cannot listen"));
  EXPECT_THAT(FdSocket::Open({.path = folder_.path() + "/g", .group = "no-such-group"}, &clock_),
              IsError(absl::StatusCode::kFailedPrecondition, "no such group"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/g"));
  EXPECT_THAT(FdSocket::Open({.path = folder_.path(), .group = ""}, &clock_),
              IsError(absl::StatusCode::kAlreadyExists, "no socket"));
}

}  // namespace
}  // namespace octavo::handoff
