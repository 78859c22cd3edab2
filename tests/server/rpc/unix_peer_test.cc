#include "server/rpc/transport/unix_peer.h"

#include <fcntl.h>
#include <grp.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/support/temp_folder.h"

namespace octavo::rpc {
namespace {

/// A listening Unix socket that everybody may connect to, and users who do.
class UnixPeerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be other users";
    address_.sun_family = AF_UNIX;
    const std::string path = folder_ / "s";
    path.copy(address_.sun_path, sizeof address_.sun_path - 1);
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    ASSERT_EQ(::listen(listener_.get(), 16), 0);
    for (std::string at = path; at.size() > 1; at = at.substr(0, at.rfind('/'))) {
      if (at.rfind("/tmp", 0) == 0 && at != "/tmp") ASSERT_EQ(::chmod(at.c_str(), 0777), 0);
    }
  }
  /// The server's end of a connection by a process of this user, which has ended.
  UniqueFd ConnectAs(uid_t uid, gid_t gid, const std::vector<gid_t>& groups = {}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      const bool fine = ::setgroups(groups.size(), groups.data()) == 0 &&
                        ::setresgid(gid, gid, gid) == 0 && ::setresuid(uid, uid, uid) == 0 &&
                        ::connect(fd, reinterpret_cast<sockaddr*>(&address_), sizeof address_) == 0;
      ::_exit(fine ? 0 : 1);
    }
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the user cannot connect";
    return UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  static std::string Text(const UniqueFd& fd) { return absl::StrCat("fd:", fd.get()); }

  const testing::TempFolder folder_;
  sockaddr_un address_{};
  UniqueFd listener_;
};

TEST_F(UnixPeerTest, TellsUserAndGroup) {
  constexpr gid_t kGroup = 4711;
  std::vector<gid_t> many;
  for (gid_t group = 10'000; group < 10'200; ++group) many.push_back(group);
  many.push_back(kGroup);
  const struct {
    uid_t uid;
    gid_t gid;
    std::vector<gid_t> groups;
    bool of_group;
  } users[] = {{1001, kGroup, {}, true},
               {1002, 1002, {5, kGroup}, true},
               {1003, 1003, many, true},
               {1004, 1004, {}, false},
               {1005, 1005, {4710, 4712}, false}};
  for (const auto& user : users) {
    const auto [fd, noted] =
        NotedUnixPeer::Note(ConnectAs(user.uid, user.gid, user.groups), kGroup);
    ASSERT_TRUE(fd);
    const auto peer = UnixPeerOf(Text(fd));
    ASSERT_TRUE(peer.has_value());
    EXPECT_EQ(peer->uid, user.uid);
    EXPECT_EQ(peer->of_group, user.of_group) << user.uid;
  }
}

TEST_F(UnixPeerTest, ANumberIsNotSoonThatOfAnotherUser) {
  auto [first, noted] = NotedUnixPeer::Note(ConnectAs(1001, 1001), std::nullopt);
  const int number = first.get();
  const std::string text = Text(first);
  first = UniqueFd();  // gRPC closes it; the listener does not know yet
  // A call of the first user may still be on its way: the number stays its.
  auto [second, noted_second] = NotedUnixPeer::Note(ConnectAs(1002, 1002), std::nullopt);
  EXPECT_NE(second.get(), number);
  EXPECT_EQ(UnixPeerOf(text)->uid, 1001u);
  EXPECT_EQ(UnixPeerOf(Text(second))->uid, 1002u);
  noted = NotedUnixPeer();  // now the listener knows
  auto [third, noted_third] = NotedUnixPeer::Note(ConnectAs(1003, 1003), std::nullopt);
  EXPECT_NE(third.get(), number);
  EXPECT_EQ(UnixPeerOf(text)->uid, 1001u);
  // The same user gets it back at once.
  auto [again, noted_again] = NotedUnixPeer::Note(ConnectAs(1001, 1001), std::nullopt);
  EXPECT_EQ(again.get(), number);
}

TEST_F(UnixPeerTest, KnowsNoOtherPeers) {
  for (const char* text : {"", "fd:", "fd:x", "fd:-1", "fd:99999", "ipv4:127.0.0.1:1", "unix:/x"})
    EXPECT_FALSE(UnixPeerOf(text).has_value()) << text;
}

}  // namespace
}  // namespace octavo::rpc
