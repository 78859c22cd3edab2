#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/handoff/fd_socket.h"
#include "tests/support/fake_clock.h"
#include "tests/support/handoff_peer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::handoff::testing {

/// Hands over a memory file with a text in it, and records the outcome.
class TextGrant final : public Grant {
 public:
  explicit TextGrant(const std::string& text, v1::Purpose purpose = v1::PURPOSE_MEMORY)
      : purpose_(purpose), fd_(::memfd_create("text", MFD_CLOEXEC)) {
    [[maybe_unused]] const ssize_t ignored = ::write(fd_.get(), text.data(), text.size());
  }
  v1::Purpose purpose() const override { return purpose_; }
  absl::StatusOr<Answer> Open(const Peer& peer, const v1::Present& request,
                              std::shared_ptr<Link> link) override {
    peer_ = peer;
    link_ = std::move(link);
    if (request.have_size() > 0 && request.have(0) == "fail")
      return absl::FailedPreconditionError("it was told to");
    Answer answer{.message = {}, .descriptor = fd_.get(), .keep = nullptr};
    answer.message.mutable_exported()->set_name("exports/text");
    return answer;
  }
  /// Repeats what it is to take.
  absl::StatusOr<Answer> Message(const v1::ClientMessage& request) override {
    if (request.take().volume() == "bad") return InvalidField("bad", "is there");
    Answer answer;
    answer.message.mutable_exported()->set_resource(request.take().volume());
    return answer;
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
  Peer peer() const { return peer_; }
  int ends() const { return ends_; }

 private:
  const v1::Purpose purpose_;
  const UniqueFd fd_;
  Peer peer_;
  std::shared_ptr<Link> link_;
  std::promise<GrantEnd> end_;
  std::atomic<int> ends_{0};
};

inline size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}
/// Waits for the socket's thread, which may still be closing something.
inline bool Settles(const std::function<bool()>& done) {
  for (int i = 0; i < 4000 && !done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return done();
}

/// A socket with a clock that the test moves.
class SocketTest : public ::testing::Test {
 protected:
  void Listen(FdSocketConfig config = {}) {
    config.path = path_;
    ASSERT_OK_AND_ASSIGN(socket_, FdSocket::Open(config, &clock_));
  }
  std::string Nonce(const std::shared_ptr<Grant>& grant, std::optional<uid_t> uid = ::getuid()) {
    auto ticket = socket_->Issue(grant, uid);
    EXPECT_THAT(ticket, octavo::testing::IsOk());
    return ticket->nonce;
  }
  /// A client gets its descriptor: the socket is in order.
  void ExpectService() {
    auto grant = std::make_shared<TextGrant>("here");
    octavo::testing::HandoffPeer peer(path_);
    ASSERT_TRUE(peer.connected());
    const auto packet = peer.Ask(octavo::testing::PresentMessage(Nonce(grant)));
    ASSERT_EQ(packet.fds.size(), 1u) << packet.message.ShortDebugString();
    char text[4];
    ASSERT_EQ(::pread(packet.fds[0].get(), text, 4, 0), 4);
    EXPECT_EQ(std::string(text, 4), "here");
    peer.Close();
    EXPECT_EQ(grant->WaitForEnd(), GrantEnd::kHungUp);
  }
  octavo::testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/h.sock";
  octavo::testing::FakeClock clock_;
  std::unique_ptr<FdSocket> socket_;
};

}  // namespace octavo::handoff::testing
