#include "server/handoff/fd_socket.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/fake_clock.h"
#include "tests/support/handoff_peer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::handoff {
namespace {

using nlohmann::json;
using ::octavo::testing::FakeClock;
using ::octavo::testing::HandoffPeer;
using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::octavo::testing::TempFolder;

/// Hands over a memory file with a text in it, and records the outcome.
class TextGrant final : public Grant {
 public:
  explicit TextGrant(const std::string& text) : fd_(::memfd_create("text", MFD_CLOEXEC)) {
    [[maybe_unused]] const ssize_t ignored = ::write(fd_.get(), text.data(), text.size());
  }
  absl::StatusOr<Answer> Open(const Peer& peer, const json& request,
                              std::shared_ptr<Link> link) override {
    link_ = std::move(link);
    if (request.value("fail", false)) return absl::FailedPreconditionError("it was told to");
    return Answer{
        .message = {{"uid", peer.uid}, {"pid", peer.pid}}, .fds = {fd_.get()}, .keep = nullptr};
  }
  absl::StatusOr<Answer> Message(const json& request) override {
    if (request.contains("bad")) return InvalidField("bad", "is there");
    return Answer{.message = {{"echo", request.value("say", "")}}, .fds = {}, .keep = nullptr};
  }
  void Ended(GrantEnd why) override {
    ++ends_;
    link_ = nullptr;
    end_.set_value(why);
  }
  GrantEnd WaitForEnd() {
    auto future = end_.get_future();
    EXPECT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    return future.get();
  }
  std::shared_ptr<Link> link() { return link_; }
  int ends() const { return ends_; }

 private:
  const UniqueFd fd_;
  std::shared_ptr<Link> link_;
  std::promise<GrantEnd> end_;
  std::atomic<int> ends_{0};
};

size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

class FdSocketTest : public ::testing::Test {
 protected:
  void Listen(FdSocketConfig config = {}) {
    config.path = path_;
    ASSERT_OK_AND_ASSIGN(socket_, FdSocket::Open(config, &clock_));
  }
  std::string Nonce(const std::shared_ptr<Grant>& grant, std::optional<uid_t> uid = ::getuid()) {
    auto ticket = socket_->Issue(grant, uid);
    EXPECT_THAT(ticket, IsOk());
    return ticket->nonce;
  }
  TempFolder folder_;
  const std::string path_ = folder_.path() + "/h.sock";
  FakeClock clock_;
  std::unique_ptr<FdSocket> socket_;
};

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
  auto packet = peer.Ask({{"ticket", ticket.nonce}, {"re", "x1"}});
  ASSERT_EQ(packet.fds.size(), 1u) << packet.message;
  EXPECT_EQ(packet.message["uid"], ::getuid());
  EXPECT_EQ(packet.message["pid"], ::getpid());
  EXPECT_EQ(packet.message["re"], "x1");
  char text[8];
  ASSERT_EQ(::pread(packet.fds[0].get(), text, 8, 0), 8);
  EXPECT_EQ(std::string(text, 8), "a volume");
  // The socket refuses a second use, by the same or by another connection.
  EXPECT_EQ(peer.Ask({{"ticket", ticket.nonce}}).reason(), "TICKET_USED");
  HandoffPeer other(path_);
  auto refused = other.Ask({{"ticket", ticket.nonce}});
  EXPECT_EQ(refused.reason(), "TICKET_USED");
  EXPECT_EQ(refused.message["error"]["code"], "PERMISSION_DENIED");
  EXPECT_TRUE(refused.fds.empty());
  EXPECT_EQ(socket_->Count().refused["TICKET_USED"], 2);
  EXPECT_EQ(socket_->Count().grants, 1);
  peer.Close();
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
}

TEST_F(FdSocketTest, WhatIsNoTicketIsRefused) {
  Listen();
  HandoffPeer peer(path_);
  EXPECT_EQ(peer.Ask({{"ticket", std::string(32, '0')}}).reason(), "TICKET_UNKNOWN");
  EXPECT_EQ(peer.Ask({{"ticket", 7}}).reason(), "TICKET_UNKNOWN");
  EXPECT_EQ(peer.Ask({{"grant", 1}}).reason(), "NO_GRANT");
  EXPECT_EQ(peer.Ask({{"grant", -1}}).reason(), "PROTOCOL");
  EXPECT_EQ(peer.Ask(json::array()).reason(), "PROTOCOL");
  ASSERT_TRUE(peer.SendText("{"));
  EXPECT_EQ(peer.Receive().reason(), "PROTOCOL");
  ASSERT_TRUE(peer.SendText(std::string(FdSocket::kMostMessageBytes + 1, ' ')));
  EXPECT_EQ(peer.Receive().reason(), "PROTOCOL");
  ASSERT_TRUE(peer.SendText("{\"ticket\": \"\xff\xfe\"}"));
  EXPECT_EQ(peer.Receive().reason(), "PROTOCOL");
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
  EXPECT_EQ(peer.Ask({{"ticket", nonce}}).reason(), "TICKET_EXPIRED");
  EXPECT_EQ(socket_->Count().waiting, 0);
}

TEST_F(FdSocketTest, AnotherUsersTicketIsRefusedAndBurnt) {
  Listen();
  auto grant = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(grant, ::getuid() + 1);
  HandoffPeer peer(path_);
  auto refused = peer.Ask({{"ticket", nonce}});
  EXPECT_EQ(refused.reason(), "WRONG_PEER");
  EXPECT_TRUE(refused.fds.empty());
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kRefused);
  EXPECT_EQ(peer.Ask({{"ticket", nonce}}).reason(), "TICKET_USED");
}

TEST_F(FdSocketTest, SeveralGrantsShareAConnection) {
  Listen();
  auto one = std::make_shared<TextGrant>("1"), two = std::make_shared<TextGrant>("2"),
       bad = std::make_shared<TextGrant>("3");
  HandoffPeer peer(path_);
  const auto first = peer.Ask({{"ticket", Nonce(one)}}),
             second = peer.Ask({{"ticket", Nonce(two, std::nullopt)}});
  EXPECT_NE(first.message["grant"], second.message["grant"]);
  EXPECT_EQ(peer.Ask({{"ticket", Nonce(bad)}, {"fail", true}}).message["error"]["message"],
            "it was told to");
  EXPECT_EQ(bad->WaitForEnd(), GrantEnd::kRefused);
  EXPECT_EQ(peer.Ask({{"grant", first.message["grant"]}, {"say", "hello"}}).message["echo"],
            "hello");
  auto error = peer.Ask({{"grant", first.message["grant"]}, {"bad", 1}, {"re", 5}});
  EXPECT_EQ(error.message["error"]["field"], "bad");
  EXPECT_EQ(error.message["grant"], first.message["grant"]);
  EXPECT_EQ(error.message["re"], 5);
  // Unsolicited messages, from any thread.
  ASSERT_TRUE(two->link()->Send({{"revoked", true}}));
  const auto told = peer.Receive();
  EXPECT_EQ(told.message["revoked"], true);
  EXPECT_EQ(told.message["grant"], second.message["grant"]);
  EXPECT_EQ(peer.Ask({{"grant", first.message["grant"]}, {"end", true}}).message["ended"], true);
  EXPECT_EQ(one->WaitForEnd(), GrantEnd::kReleased);
  EXPECT_EQ(peer.Ask({{"grant", first.message["grant"]}, {"end", true}}).reason(),
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
    const char done = peer.Ask({{"ticket", nonce}}).fds.size() == 1 ? 'y' : 'n';
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
  ASSERT_EQ(peer.Ask({{"ticket", Nonce(grant)}}).fds.size(), 1u);
  const auto link = grant->link();
  int sent = 0;
  while (link->Send({{"text", std::string(4000, 'x')}})) ASSERT_LT(++sent, 100000);
  EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  EXPECT_FALSE(link->Send({}));
}

TEST_F(FdSocketTest, AConnectionWithoutAGrantEnds) {
  Listen();
  HandoffPeer peer(path_);
  EXPECT_EQ(peer.Ask({{"ticket", ""}}).reason(), "TICKET_UNKNOWN");
  clock_.Advance(10.1);
  EXPECT_TRUE(peer.Receive().ended);
}

TEST_F(FdSocketTest, StopEndsEverything) {
  Listen();
  auto waiting = std::make_shared<TextGrant>(""), open = std::make_shared<TextGrant>("");
  const std::string nonce = Nonce(waiting);
  HandoffPeer peer(path_);
  ASSERT_EQ(peer.Ask({{"ticket", Nonce(open)}}).fds.size(), 1u);
  socket_->Stop();
  EXPECT_EQ(waiting->WaitForEnd(), GrantEnd::kStopped);
  EXPECT_EQ(open->WaitForEnd(), GrantEnd::kStopped);
  EXPECT_TRUE(peer.Receive().ended);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THAT(socket_->Issue(open, {}), IsError(absl::StatusCode::kUnavailable, "stops"));
}

TEST_F(FdSocketTest, AThousandHandOversLeaveNothingBehind) {
  Listen();
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 1000; ++i) {
    auto grant = std::make_shared<TextGrant>("");
    HandoffPeer peer(path_);
    ASSERT_EQ(peer.Ask({{"ticket", Nonce(grant)}}).fds.size(), 1u);
    peer.Close();
    ASSERT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  }
  // The socket's thread may be releasing the last one at this moment.
  for (int i = 0; i < 2000 && OpenDescriptors() != before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(OpenDescriptors(), before);
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
