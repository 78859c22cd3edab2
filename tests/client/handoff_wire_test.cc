// The C++ client of the hand-over wire against servers that speak another version, say something
// unknown, or nothing of use. tests/integration/volume/handoff_wire_test.py has the same for the
// others.
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "octavo/handoff/v1/handoff.pb.h"
#include "octavo/v1/stream.pb.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/frame_stream.h"
#include "client/cpp/lib/handoff.h"
#include "client/cpp/wire/handoff_packets.h"
#include "server/handoff/packets.h"
#include "tests/client/client_support.h"

namespace octavo::client {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::OpenDescriptors;
using testing::Thrown;
namespace wire = handoff::v1;

// A field 100 that nobody knows, and groups in each other.
const std::string kUnknown = "\xa2\x06\x03yes";
std::string Nested(int depth) {
  std::string bytes;
  for (int i = 0; i < depth; ++i) bytes += "\xa3\x06";
  for (int i = 0; i < depth; ++i) bytes += "\xa4\x06";
  return bytes;
}

struct Answer {
  std::string bytes;
  int descriptor = -1;
};
using Answers = std::vector<std::function<Answer(const wire::ClientMessage& asked)>>;

/// Answers one client's Hello with the first packet and its next message with all others, and waits
/// for the end of the connection; without packets it ends the connection.
class FakeServer {
 public:
  explicit FakeServer(Answers answers) : answers_(std::move(answers)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::jthread([this] { Serve(); });
  }
  const std::string& path() const { return path_; }

 private:
  void Serve() {
    const Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string bytes(65536, '\0');
    wire::ClientMessage asked;
    for (size_t i = 0; i < answers_.size(); ++i) {
      if (i < 2) {
        const ssize_t got = ::recv(connection.get(), bytes.data(), bytes.size(), 0);
        if (got <= 0 || !asked.ParseFromArray(bytes.data(), static_cast<int>(got))) return;
      }
      Send(connection.get(), answers_[i](asked));
    }
    while (!answers_.empty() && ::recv(connection.get(), bytes.data(), bytes.size(), 0) > 0)
      continue;
  }
  static void Send(int socket, Answer answer) {
    iovec part{.iov_base = answer.bytes.data(), .iov_len = answer.bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (answer.descriptor >= 0) {
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &answer.descriptor, sizeof(int));
    }
    (void)::sendmsg(socket, &header, MSG_NOSIGNAL);
  }

  octavo::testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/h.sock";
  const Answers answers_;
  Descriptor listener_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  std::jthread thread_;
};

Answer Welcome(const wire::ClientMessage& asked) {
  EXPECT_EQ(asked.hello().versions().oldest(), 1u);
  EXPECT_EQ(asked.hello().versions().newest(), 1u);
  EXPECT_EQ(asked.hello().purpose(), wire::PURPOSE_MEMORY);
  wire::ServerMessage message;
  message.set_request(asked.request());
  message.mutable_welcome()->set_version(1);
  return {.bytes = message.SerializeAsString()};
}
std::function<Answer(const wire::ClientMessage&)> Bytes(const std::string& bytes,
                                                        int descriptor = -1) {
  return
      [=](const wire::ClientMessage&) { return Answer{.bytes = bytes, .descriptor = descriptor}; };
}

Error RefusalOf(Answers answers) {
  FakeServer server(std::move(answers));
  return Thrown([&] { (void)Handoff::Connect(server.path(), seconds(20))->Present("00"); });
}

TEST(HandoffWireTest, ANewerServer) {
  wire::ServerMessage message;
  wire::Refused& refused = *message.mutable_refused();
  refused.set_code(12);
  refused.set_reason("PROTOCOL_VERSION");
  refused.set_message("this server speaks 2 to 3");
  refused.mutable_versions()->set_oldest(2);
  refused.mutable_versions()->set_newest(3);
  auto* value = refused.add_values();
  value->set_name("oldest");
  value->set_value("2");
  const Error error = RefusalOf({Bytes(message.SerializeAsString())});
  EXPECT_EQ(error.code, Code::kUnimplemented);
  EXPECT_EQ(error.reason, "PROTOCOL_VERSION");
  EXPECT_EQ(error.numbers.at("oldest"), "2");
  EXPECT_THAT(error.what(), HasSubstr("this server speaks 2 to 3"));
}

TEST(HandoffWireTest, AnswersThatAreNotUnderstood) {
  const auto chosen = [](uint32_t version) {
    return [=](const wire::ClientMessage& asked) {
      wire::ServerMessage message;
      message.set_request(asked.request());
      message.mutable_welcome()->set_version(version);
      return Answer{.bytes = message.SerializeAsString()};
    };
  };
  const auto unknown = [](const wire::ClientMessage& asked) {
    wire::ServerMessage message;
    message.set_request(asked.request());
    return Answer{.bytes = message.SerializeAsString() + kUnknown};
  };
  const auto released = [](const wire::ClientMessage& asked) {
    wire::ServerMessage message;
    message.set_request(asked.request());
    message.mutable_released();
    return Answer{.bytes = message.SerializeAsString()};
  };
  for (const Answers& answers : {Answers{chosen(0)}, Answers{chosen(2)}, Answers{unknown},
                                 Answers{Welcome, unknown}, Answers{Welcome, released}}) {
    const Error error = RefusalOf(answers);
    EXPECT_EQ(error.reason, "PROTOCOL") << error.what();
    EXPECT_EQ(error.code, Code::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("does not understand"));
  }
}

TEST(HandoffWireTest, WhatCannotBeReadEndsTheConnection) {
  const Descriptor file(::memfd_create("theirs", MFD_CLOEXEC));
  const size_t before = OpenDescriptors();
  for (const std::string& bytes :
       {std::string("{"), std::string(1000, '\xff'), Nested(20000), Nested(9),
        std::string("\x2a\x05 ab"), std::string(66000, ' ')}) {
    SCOPED_TRACE(bytes.substr(0, 9));
    EXPECT_EQ(RefusalOf({Bytes(bytes, file.get())}).reason, "SERVER_GONE");
    EXPECT_EQ(RefusalOf({Welcome, Bytes(bytes, file.get())}).reason, "SERVER_GONE");
  }
  EXPECT_EQ(RefusalOf({}).reason, "SERVER_GONE");
  EXPECT_EQ(OpenDescriptors(), before);
}

wire::ServerMessage Good(const wire::ClientMessage& asked) {
  wire::ServerMessage message;
  message.set_request(asked.request());
  message.set_grant(7);
  wire::Export& out = *message.mutable_exported();
  out.set_name("exports/1");
  out.set_resource("volumes/1");
  out.set_memory("ab");
  out.set_kind(wire::MEMORY_KIND_HOST_MEMFD);
  out.set_mapped_bytes(4096);
  out.set_byte_size(24);
  out.set_dtype(wire::DTYPE_U8);
  out.set_lanes(1);
  out.add_shape(24);
  return message;
}

TEST(HandoffWireTest, UnaskedMessagesOfAnUnknownKindAreIgnored) {
  const Descriptor file(::memfd_create("memory", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  ASSERT_EQ(::pwrite(file.get(), "bytes", 5, 0), 5);
  const size_t before = OpenDescriptors();
  {
    wire::ServerMessage other;
    other.set_grant(9);
    other.mutable_refused()->set_reason("NO_EXPORT");  // of a release that nobody waited for
    FakeServer server({Welcome, Bytes(kUnknown, file.get()),
                       Bytes(other.SerializeAsString(), file.get()),
                       [&](const wire::ClientMessage& asked) {
                         return Answer{.bytes = Good(asked).SerializeAsString() + kUnknown,
                                       .descriptor = file.get()};
                       }});
    const auto connection = Handoff::Connect(server.path(), seconds(20));
    {
      const Mapped mapped = connection->Present("00");
      EXPECT_EQ(std::memcmp(mapped.data(), "bytes", 5), 0);
      EXPECT_EQ(mapped.info().scalar, "u8");
    }
    connection->Forget();
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(HandoffWireTest, AnExportThatCannotBe) {
  const Descriptor file(::memfd_create("memory", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  const std::vector<std::pair<std::function<void(wire::Export*)>, std::string>> cases = {
      {[](wire::Export* out) { out->set_dtype(static_cast<wire::Dtype>(99)); }, "(99)"},
      {[](wire::Export* out) { out->set_dtype(wire::DTYPE_UNSPECIFIED); }, "(0)"},
      {[](wire::Export* out) { out->set_kind(static_cast<wire::MemoryKind>(9)); }, "(9)"},
      {[](wire::Export* out) { out->set_byte_offset(4090); }, "does not lie in the memory"},
      {[](wire::Export* out) { out->set_byte_size(~uint64_t{0}); }, "does not lie in the memory"},
      {[](wire::Export* out) { out->set_mapped_bytes(~uint64_t{0}); }, "does not lie in"}};
  for (const auto& [change, words] : cases) {
    const Error error =
        RefusalOf({Welcome, [&](const wire::ClientMessage& asked) {
                     wire::ServerMessage message = Good(asked);
                     change(message.mutable_exported());
                     return Answer{.bytes = message.SerializeAsString(), .descriptor = file.get()};
                   }});
    EXPECT_EQ(error.reason, "PROTOCOL");
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

// A read behind the end of the file would end the program (SIGBUS).
TEST(HandoffWireTest, AMemoryFileShorterThanItsExportIsNotMapped) {
  const Descriptor file(::memfd_create("memory", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  const Error error =
      RefusalOf({Welcome, [&](const wire::ClientMessage& asked) {
                   wire::ServerMessage message = Good(asked);
                   message.mutable_exported()->set_mapped_bytes(8192);
                   message.mutable_exported()->set_byte_offset(4096);
                   return Answer{.bytes = message.SerializeAsString(), .descriptor = file.get()};
                 }});
  EXPECT_EQ(error.reason, "MAP");
  EXPECT_THAT(error.what(), HasSubstr("4096 bytes and not 8192"));
}

// -- frames of a subscription

std::function<Answer(const wire::ClientMessage&)> WelcomeTo(wire::Purpose purpose) {
  return [=](const wire::ClientMessage& asked) {
    EXPECT_EQ(asked.hello().purpose(), purpose);
    wire::ServerMessage message;
    message.set_request(asked.request());
    message.mutable_welcome()->set_version(1);
    return Answer{.bytes = message.SerializeAsString()};
  };
}
wire::ServerMessage GoodFrame() {
  wire::ServerMessage message;
  message.set_grant(7);
  wire::FrameReady& ready = *message.mutable_frame_ready();
  ready.set_slot(1);
  ready.set_memory(1);
  ready.set_mapped_bytes(4096);
  ready.set_byte_size(5);
  ready.set_frame_offset(64);
  v1::Frame frame;
  frame.set_volume("volumes/1");
  frame.set_sequence(3);
  ready.set_frame_bytes(frame.ByteSizeLong());
  return message;
}
/// A slot's memory with the frame of GoodFrame.
Descriptor FrameMemory() {
  Descriptor file(::memfd_create("frame", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), 4096), 0);
  EXPECT_EQ(::pwrite(file.get(), "bytes", 5, 0), 5);
  v1::Frame frame;
  frame.set_volume("volumes/1");
  frame.set_sequence(3);
  const std::string text = frame.SerializeAsString();
  EXPECT_EQ(::pwrite(file.get(), text.data(), text.size(), 64), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return file;
}

TEST(FramesOfFeedTest, FramesComeAndEnd) {
  const Descriptor file = FrameMemory();
  const size_t before = OpenDescriptors();
  for (const bool with_error : {false, true}) {
    wire::ServerMessage opened, again = GoodFrame(), ended;
    opened.set_grant(7);
    opened.mutable_frames_opened()->set_slots(4);
    again.mutable_frame_ready()->set_byte_size(2);
    ended.mutable_frames_ended();
    if (with_error) {
      wire::Refused& why = *ended.mutable_frames_ended()->mutable_why();
      why.set_code(8);
      why.set_reason("SLOW_SUBSCRIBER");
      why.set_message("too slow");
      wire::Refused::Value& value = *why.add_values();
      value.set_name("resume_from");
      value.set_value("4");
    }
    FakeServer server({WelcomeTo(wire::PURPOSE_FRAMES), Bytes(opened.SerializeAsString()),
                       Bytes(kUnknown, file.get()),
                       Bytes(GoodFrame().SerializeAsString() + kUnknown, file.get()),
                       Bytes(again.SerializeAsString()), Bytes(ended.SerializeAsString())});
    const auto frames = FramesOfFeed(server.path(), "00");
    Frame frame;
    ASSERT_TRUE(frames->Next(&frame));
    EXPECT_EQ(frame.volume, "volumes/1");
    EXPECT_EQ(frame.sequence, 3u);
    ASSERT_EQ(frame.array.data.size(), 5u);
    EXPECT_EQ(std::memcmp(frame.array.data.data(), "bytes", 5), 0);
    ASSERT_TRUE(frames->Next(&frame)) << "in memory that is mapped already";
    EXPECT_EQ(frame.array.data.size(), 2u);
    if (with_error) {
      const Error error = Thrown([&] { (void)frames->Next(&frame); });
      EXPECT_EQ(error.reason, "SLOW_SUBSCRIBER");
      EXPECT_EQ(error.numbers.at("resume_from"), "4");
    } else {
      EXPECT_FALSE(frames->Next(&frame));
    }
    EXPECT_FALSE(frames->Next(&frame)) << "the end stays one";
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(FramesOfFeedTest, FramesThatCannotBe) {
  const Descriptor file = FrameMemory();
  using Change = std::function<void(wire::FrameReady*)>;
  const std::vector<std::tuple<Change, bool, std::string>> cases = {
      {[](wire::FrameReady* out) { out->set_slot(64); }, true, "slot 64"},
      {[](wire::FrameReady* out) { out->set_slot(~uint32_t{0}); }, true, "slot 4294967295"},
      {[](wire::FrameReady*) {}, false, "memory that did not come"},
      {[](wire::FrameReady* out) { out->set_mapped_bytes(8192); }, true, "smaller than it says"},
      {[](wire::FrameReady* out) { out->set_mapped_bytes(0); }, true, "smaller than it says"},
      {[](wire::FrameReady* out) { out->set_mapped_bytes(~uint64_t{0}); }, true, "smaller"},
      {[](wire::FrameReady* out) { out->set_byte_size(4097); }, true, "does not lie"},
      {[](wire::FrameReady* out) { out->set_byte_size(~uint64_t{0}); }, true, "does not lie"},
      {[](wire::FrameReady* out) { out->set_frame_offset(4090); }, true, "does not lie"},
      {[](wire::FrameReady* out) { out->set_frame_offset(~uint64_t{0}); }, true, "does not lie"},
      {[](wire::FrameReady* out) { out->set_frame_bytes(~uint64_t{0}); }, true, "does not lie"},
      {[](wire::FrameReady* out) { out->set_frame_offset(0); }, true, "cannot be read"}};
  for (const auto& [change, with_memory, words] : cases) {
    SCOPED_TRACE(words);
    wire::ServerMessage message = GoodFrame();
    change(message.mutable_frame_ready());
    FakeServer server({WelcomeTo(wire::PURPOSE_FRAMES),
                       Bytes(message.SerializeAsString(), with_memory ? file.get() : -1)});
    const auto frames = FramesOfFeed(server.path(), "00");
    Frame frame;
    const Error error = Thrown([&] { (void)frames->Next(&frame); });
    EXPECT_EQ(error.reason, "PROTOCOL");
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

// A read behind the end of the file would end the program (SIGBUS).
TEST(FramesOfFeedTest, MemoryThatMayShrinkIsNotMapped) {
  const Descriptor file(::memfd_create("frame", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  FakeServer server(
      {WelcomeTo(wire::PURPOSE_FRAMES), Bytes(GoodFrame().SerializeAsString(), file.get())});
  const auto frames = FramesOfFeed(server.path(), "00");
  Frame frame;
  const Error error = Thrown([&] { (void)frames->Next(&frame); });
  EXPECT_EQ(error.reason, "PROTOCOL");
  EXPECT_THAT(error.what(), HasSubstr("memory that may shrink"));
}

TEST(FramesOfFeedTest, AServerThatIsNotThereGoesAwayOrRefuses) {
  EXPECT_EQ(Thrown([] { (void)FramesOfFeed("/nowhere/h.sock", "00"); }).reason, "SERVER_GONE");
  Frame frame;
  {
    FakeServer server({});
    const auto frames = FramesOfFeed(server.path(), "00");
    EXPECT_EQ(Thrown([&] { (void)frames->Next(&frame); }).reason, "SERVER_GONE");
  }
  {
    wire::ServerMessage message;
    message.mutable_refused()->set_code(7);
    message.mutable_refused()->set_reason("TICKET_USED");
    FakeServer server({WelcomeTo(wire::PURPOSE_FRAMES), Bytes(message.SerializeAsString())});
    const auto frames = FramesOfFeed(server.path(), "00");
    const Error error = Thrown([&] { (void)frames->Next(&frame); });
    EXPECT_EQ(error.code, Code::kPermissionDenied);
    EXPECT_EQ(error.reason, "TICKET_USED");
  }
  {
    FakeServer server({WelcomeTo(wire::PURPOSE_FRAMES), Bytes(std::string(66000, ' '))});
    const auto frames = FramesOfFeed(server.path(), "00");
    EXPECT_EQ(Thrown([&] { (void)frames->Next(&frame); }).reason, "PROTOCOL");
  }
  {
    FakeServer server({WelcomeTo(wire::PURPOSE_FRAMES), Bytes(kUnknown)});
    const auto frames = FramesOfFeed(server.path(), "00");
    std::jthread canceller([&] { frames->Cancel(); });
    EXPECT_FALSE(frames->Next(&frame));
  }
}

TEST(HandoffWireTest, BothSidesSpeakTheSameVersions) {
  EXPECT_EQ(octavo::wire::kOldestVersion, handoff::kOldestVersion);
  EXPECT_EQ(octavo::wire::kNewestVersion, handoff::kNewestVersion);
}

}  // namespace
}  // namespace octavo::client
