// The C++ client of the hand-over wire against servers that speak another version, say something
// unknown, or nothing of use. tests/integration/volume/handoff_wire_test.py has the same for the
// others.
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "octavo/handoff/v1/handoff.pb.h"

#include "client/cpp/include/octavo/octavo.h"
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

TEST(HandoffWireTest, BothSidesSpeakTheSameVersions) {
  EXPECT_EQ(octavo::wire::kOldestVersion, handoff::kOldestVersion);
  EXPECT_EQ(octavo::wire::kNewestVersion, handoff::kNewestVersion);
}

}  // namespace
}  // namespace octavo::client
