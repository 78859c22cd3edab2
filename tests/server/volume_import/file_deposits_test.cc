// Files that clients hand over: what is taken, for how long, and that nothing is left.

#include "server/volume_import/file_deposits.h"

#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/clock.h"
#include "server/handoff/fd_socket.h"
#include "tests/support/handoff_peer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::volume_import {
namespace {

using octavo::testing::EndMessage;
using octavo::testing::HandoffPeer;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::PresentMessage;

class FileDepositsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("a", "0123456789");
    ASSERT_OK_AND_ASSIGN(
        socket_, handoff::FdSocket::Open({.path = folder_ / "socket", .group = ""}, &clock_));
  }
  UniqueFd OpenFile(const std::string& name, int flags = O_RDONLY) const {
    return UniqueFd(::open((folder_ / name).c_str(), flags | O_CLOEXEC));
  }
  std::string Ticket() {
    const auto ticket = deposits_.Open(*socket_, "a", "ipv4:1", ::getuid());
    EXPECT_THAT(ticket, IsOk());
    return ticket.ok() ? ticket->nonce : "";
  }
  HandoffPeer::Packet Present(HandoffPeer& peer, const std::string& ticket, int descriptor) {
    EXPECT_TRUE(peer.Send(PresentMessage(ticket), descriptor));
    return peer.Receive();
  }
  absl::Status Finding(const std::string& ticket) {
    return deposits_.Find(ticket, "volume_import.deposit").status();
  }
  void ExpectGone(const std::string& ticket) {
    const absl::Status gone = Finding(ticket);
    EXPECT_THAT(gone, IsError(absl::StatusCode::kNotFound, "no file is there with this ticket"));
    EXPECT_EQ(InfoOf(gone).reason, Reason::kTicketUnknown);
    EXPECT_EQ(InfoOf(gone).field, "volume_import.deposit");
  }
  static std::ptrdiff_t OpenDescriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  }

  const SystemClock clock_;
  octavo::testing::TempFolder folder_;
  FileDeposits deposits_;
  std::unique_ptr<handoff::FdSocket> socket_;
};

TEST_F(FileDepositsTest, AFileIsThereWhileItsConnectionLasts) {
  const std::ptrdiff_t before = OpenDescriptors();
  const std::string ticket = Ticket();
  ExpectGone(ticket);  // not presented yet
  {
    HandoffPeer peer(folder_ / "socket", handoff::v1::PURPOSE_FILE);
    const auto packet = Present(peer, ticket, OpenFile("a").get());
    ASSERT_TRUE(packet.message.has_deposited()) << packet.message.ShortDebugString();
    EXPECT_EQ(deposits_.count(), 1u);
    ASSERT_OK_AND_ASSIGN(const DepositedFile file, deposits_.Find(ticket, "f"));
    EXPECT_EQ(file.name, "a");
    char text[4];
    ASSERT_EQ(::pread(file.fd.get(), text, 4, 3), 4);
    EXPECT_EQ(std::string(text, 4), "3456");
    EXPECT_THAT(Finding(ticket), IsOk()) << "as often as it is wanted";
    // The grant ends alone, too.
    EXPECT_TRUE(peer.Ask(EndMessage(packet.message.grant())).message.has_ended());
    ExpectGone(ticket);
    const std::string second = Ticket();
    ASSERT_TRUE(Present(peer, second, OpenFile("a").get()).message.has_deposited());
  }
  while (deposits_.count() > 0) ::usleep(1000);  // the socket sees the end
  while (OpenDescriptors() > before) ::usleep(1000);
}

TEST_F(FileDepositsTest, OnlyFilesAndFoldersThatCanBeRead) {
  HandoffPeer peer(folder_ / "socket", handoff::v1::PURPOSE_FILE);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd from(ends[0]), to(ends[1]);
  EXPECT_EQ(Present(peer, Ticket(), from.get()).reason(), "UNSUPPORTED_FILE");
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  EXPECT_EQ(Present(peer, Ticket(), one.get()).reason(), "UNSUPPORTED_FILE");
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC)), device(::open("/dev/zero", O_RDONLY));
  EXPECT_EQ(Present(peer, Ticket(), event.get()).reason(), "UNSUPPORTED_FILE");
  EXPECT_EQ(Present(peer, Ticket(), device.get()).reason(), "UNSUPPORTED_FILE");
  EXPECT_EQ(Present(peer, Ticket(), OpenFile("a", O_WRONLY).get()).reason(), "NO_ACCESS");
  EXPECT_EQ(Present(peer, Ticket(), OpenFile("a", O_PATH).get()).reason(), "NO_ACCESS");
  EXPECT_EQ(deposits_.count(), 0u);
  EXPECT_TRUE(Present(peer, Ticket(), OpenFile("a", O_RDWR).get()).message.has_deposited());
  EXPECT_TRUE(Present(peer, Ticket(), OpenFile(".").get()).message.has_deposited())
      << "of the server's own user";
  const std::string ticket = Ticket();
  EXPECT_EQ(Present(peer, ticket, -1).reason(), "PROTOCOL");
  EXPECT_TRUE(Present(peer, ticket, OpenFile("a").get()).message.has_deposited())
      << "the ticket was still good";
}

TEST_F(FileDepositsTest, ATicketIsGoodOnceAndForOneUser) {
  const std::string ticket = Ticket();
  HandoffPeer peer(folder_ / "socket", handoff::v1::PURPOSE_FILE),
      other(folder_ / "socket", handoff::v1::PURPOSE_FILE);
  ASSERT_TRUE(Present(peer, ticket, OpenFile("a").get()).message.has_deposited());
  EXPECT_EQ(Present(peer, ticket, OpenFile("a").get()).reason(), "TICKET_USED");
  EXPECT_EQ(Present(other, ticket, OpenFile("a").get()).reason(), "TICKET_USED");
  EXPECT_THAT(Finding(ticket), IsOk()) << "those attempts change nothing";
  ASSERT_OK_AND_ASSIGN(const handoff::Ticket foreign,
                       deposits_.Open(*socket_, "a", "ipv4:1", ::getuid() + 1));
  EXPECT_EQ(Present(peer, foreign.nonce, OpenFile("a").get()).reason(), "WRONG_PEER");
  ExpectGone(foreign.nonce);
  HandoffPeer memory(folder_ / "socket", handoff::v1::PURPOSE_MEMORY);
  const std::string kind = Ticket();
  EXPECT_EQ(Present(memory, kind, -1).reason(), "TICKET_KIND");
  EXPECT_TRUE(Present(peer, kind, OpenFile("a").get()).message.has_deposited());
}

TEST_F(FileDepositsTest, NamesAreBoundedAndShownInPrint) {
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string(256, 'x'), std::string("a\x1b[2J\n/")}) {
    const absl::Status refused = deposits_.Open(*socket_, name, "c", std::nullopt).status();
    EXPECT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument, "1 to 255 bytes"));
    EXPECT_EQ(InfoOf(refused).field, "name");
    for (const char c : refused.message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20u) << name;
  }
  ASSERT_OK_AND_ASSIGN(const handoff::Ticket odd,
                       deposits_.Open(*socket_, "bell\a.npy", "c", ::getuid()));
  HandoffPeer peer(folder_ / "socket", handoff::v1::PURPOSE_FILE);
  ASSERT_TRUE(Present(peer, odd.nonce, OpenFile("a").get()).message.has_deposited());
  ASSERT_OK_AND_ASSIGN(const DepositedFile file, deposits_.Find(odd.nonce, "f"));
  EXPECT_EQ(file.name, "bell\\x07.npy");
}

TEST_F(FileDepositsTest, OneClientLeavesRoomForOthers) {
  const auto refusal = [&](const std::string& connection, std::optional<uid_t> uid) {
    return deposits_.Open(*socket_, "a", connection, uid).status();
  };
  const auto take = [&](size_t count, const std::string& connection, uid_t uid) {
    for (size_t i = 0; i < count; ++i) ASSERT_THAT(refusal(connection, uid), IsOk());
  };
  take(FileDeposits::kMostOfConnection, "first", 7);
  const absl::Status many = refusal("first", 7);
  EXPECT_THAT(many, IsError(absl::StatusCode::kResourceExhausted, "32 files of this connection"));
  EXPECT_EQ(InfoOf(many).reason, Reason::kTickets);
  EXPECT_THAT(refusal("second", 7), IsOk()) << "another connection of the same user";
  take(FileDeposits::kMostOfConnection - 1, "second", 7);
  take(FileDeposits::kMostOfConnection, "third", 7);
  take(FileDeposits::kMostOfConnection, "fourth", 7);
  EXPECT_THAT(refusal("fifth", 7),
              IsError(absl::StatusCode::kResourceExhausted, "128 files of this user"));
  EXPECT_THAT(refusal("fifth", 8), IsOk()) << "another user";
  EXPECT_THAT(refusal("sixth", std::nullopt), IsOk());
  for (int i = 0; i < 4; ++i) {
    const size_t left = i == 0 ? 30 : 32;
    take(left, absl::StrCat("more ", i), 9 + static_cast<uid_t>(i));
  }
  EXPECT_THAT(refusal("last", 20),
              IsError(absl::StatusCode::kResourceExhausted, "256 files of all clients"));
  socket_->Stop();  // ends them all
  EXPECT_EQ(deposits_.count(), 0u);
}

TEST_F(FileDepositsTest, PlacesComeBack) {
  for (int round = 0; round < 3; ++round) {
    HandoffPeer peer(folder_ / "socket", handoff::v1::PURPOSE_FILE);
    for (size_t i = 0; i < FileDeposits::kMostOfConnection; ++i) {
      const auto packet = Present(peer, Ticket(), OpenFile("a").get());
      ASSERT_TRUE(packet.message.has_deposited()) << round << " " << i;
      ASSERT_TRUE(peer.Ask(EndMessage(packet.message.grant())).message.has_ended());
    }
  }
}

}  // namespace
}  // namespace octavo::volume_import
