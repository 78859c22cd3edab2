// Memory that clients lend to buffers: what is refused, how a buffer ends, and that nothing is
// left, whatever the client does and when it dies.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "server/handoff/fd_socket.h"
#include "server/session/client_sessions.h"
#include "tests/server/buffer/buffer_fixture.h"
#include "tests/support/handoff_peer.h"
#include "tests/support/lent_memory.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::EndMessage;
using octavo::testing::HandoffPeer;
using octavo::testing::HelloMessage;
using octavo::testing::IsOk;
using octavo::testing::LentMemory;
using octavo::testing::PresentMessage;
using octavo::testing::TakeMessage;
using ::testing::HasSubstr;
using testing::kMe;
namespace wire = handoff::v1;

constexpr int64_t kBytes = 2 << 20;
const std::vector<uint64_t> kShape = {512, 1024};  // of f32: kBytes

size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

bool Settles(const std::function<bool()>& done) {
  for (int i = 0; i < 4000 && !done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return done();
}

wire::ClientMessage PublishMessage(uint64_t grant) {
  wire::ClientMessage message;
  message.set_grant(grant);
  message.mutable_publish();
  return message;
}

class BufferImportTest : public testing::BufferStoreTest {
 protected:
  BufferImportTest() { Serve({}); }
  ~BufferImportTest() override {
    ExpectNothingLeft();
    socket_->Stop();
    store_ = nullptr;
  }
  /// Starts store and socket anew.
  void Serve(LoanBook::Limits limits) {
    store_ = nullptr;
    socket_ = nullptr;
    socket_ = handoff::FdSocket::Open({.path = path_, .group = {}}, &clock_).value();
    context_.handoff = socket_.get();
    context_.sessions = &sessions_;
    context_.import_limits = limits;
    store_ = std::make_unique<BufferStore>(context_);
  }
  static BufferImportSpec Spec(Scalar scalar = Scalar::kF32, std::vector<uint64_t> shape = kShape) {
    BufferImportSpec spec;
    spec.array.scalar = scalar;
    spec.array.shape = std::move(shape);
    return spec;
  }
  ImportTicket Ticket(const BufferImportSpec& spec = Spec()) {
    auto ticket = store_->Import(spec, kMe, ::getuid());
    EXPECT_THAT(ticket, IsOk());
    return *std::move(ticket);
  }
  LentMemory Lend(int64_t bytes = kBytes) { return LentMemory::Of(devices_[0]->real(), bytes); }
  /// A client with one buffer of its memory.
  struct Lender {
    LentMemory memory;
    HandoffPeer peer;
    std::string buffer;
    uint64_t grant = 0;
  };
  Lender Import(const BufferImportSpec& spec = Spec(), int64_t bytes = kBytes) {
    const ImportTicket ticket = Ticket(spec);
    Lender lender{.memory = Lend(bytes),
                  .peer = HandoffPeer(path_, wire::PURPOSE_IMPORT),
                  .buffer = ticket.buffer};
    Present(lender, ticket);
    return lender;
  }
  void Present(Lender& lender, const ImportTicket& ticket) {
    const auto answer = lender.peer.Ask(PresentMessage(ticket.ticket.nonce), lender.memory.fd());
    EXPECT_EQ(answer.message.imported().name(), ticket.buffer) << answer.message.DebugString();
    EXPECT_EQ(answer.message.imported().version(), 1u);
    EXPECT_EQ(answer.message.imported().mapped_bytes(), static_cast<uint64_t>(ticket.bytes));
    EXPECT_EQ(answer.message.imported().kind(),
              GetParam() == "host" ? wire::MEMORY_KIND_HOST_MEMFD : wire::MEMORY_KIND_CUDA_VMM);
    lender.grant = answer.message.grant();
  }
  void Fill(LentMemory& memory, float value) {
    const std::vector<float> values(static_cast<size_t>(memory.bytes()) / sizeof(float), value);
    memory.Write(values.data(), memory.bytes());
  }
  int64_t Lent() { return store_->Count().loans; }
  int64_t LentBytes() { return store_->LentBytes()[0]; }
  /// The next unasked message: the end of the import.
  void ExpectEnded(HandoffPeer& peer, const std::string& buffer, wire::ImportEnded::Why why) {
    for (int i = 0; i < 2; ++i) {
      const auto told = peer.Receive();
      if (told.message.has_ended()) continue;  // End may be answered first
      EXPECT_EQ(told.message.import_ended().name(), buffer) << told.message.DebugString();
      EXPECT_EQ(told.message.import_ended().why(), why) << told.message.DebugString();
      return;
    }
    ADD_FAILURE() << "no ImportEnded";
  }
  void ExpectGone(const std::string& buffer, const std::string& why) {
    const auto get = store_->Get(buffer, kMe);
    EXPECT_REFUSED(get, kNotFound, "NO_BUFFER");
    EXPECT_THAT(get.status().message(), HasSubstr(why));
    EXPECT_REFUSED(Read<float>({.name = buffer}), kNotFound, "NO_BUFFER");
    EXPECT_REFUSED(store_->Apply({.input = buffer, .operations = {CopyOp{}}}, kMe), kNotFound,
                   "NO_BUFFER");
  }
  void ExpectNothingLeft() {
    EXPECT_TRUE(Settles([&] { return socket_->Count().connections == 0 && Lent() == 0; }))
        << Lent() << " loans, " << socket_->Count().connections << " connections";
    EXPECT_EQ(LentBytes(), 0);
    EXPECT_EQ(socket_->Count().grants, 0);
    for (const BufferStatus& buffer : store_->List(kMe))
      EXPECT_FALSE(buffer.imported) << buffer.name;
    if (GetParam() == "host") {
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);)
        EXPECT_THAT(line, ::testing::Not(HasSubstr("lent-memory")));
    }
  }
  /// Work enqueued on the devices from now on waits for so long.
  void DelayDevices(int64_t ns) {
    for (const auto& device : devices_) {
      for (const StreamRef stream : device->streams) EXPECT_THAT(device->Delay(stream, ns), IsOk());
    }
  }
  /// Makes the streams of the store, so that DelayDevices finds them.
  void WarmUp() {
    const BufferStatus buffer = Make(Scalar::kF32, {16});
    for (int i = 0; i < 8; ++i) EXPECT_THAT(Read<float>({.name = buffer.name}), IsOk());
    EXPECT_THAT(store_->Destroy(buffer.name, "", "", kMe), IsOk());
  }

  octavo::testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/h.sock";
  ClientSessions sessions_{&clock_, {}, "testtest"};
  std::unique_ptr<handoff::FdSocket> socket_;
};

TEST_P(BufferImportTest, LentMemoryIsABufferWithoutACopy) {
  const int64_t free = ledger_->UseOf(0).free();
  BufferImportSpec spec = Spec();
  spec.array.labels = {{"eye", "OD"}};
  std::vector<std::string> told;
  const auto watch =
      store_->Watch(kMe, [&](ChangeKind kind, const auto& status, const std::string& text) {
        told.push_back(absl::StrCat(static_cast<int>(kind), " ", status->replicas[0].version, " ",
                                    ::octavo::Name(status->gone), " ", text));
      });
  const size_t descriptors = OpenDescriptors();
  Lender lender = Import(spec);
  Fill(lender.memory, 3);
  ASSERT_OK_AND_ASSIGN(const BufferStatus buffer, store_->Get(lender.buffer, kMe));
  EXPECT_EQ(buffer.type.Text(), Make(Scalar::kF32, kShape).type.Text());
  EXPECT_EQ(buffer.state, BufferState::kReady);
  EXPECT_EQ(buffer.labels.at("eye"), "OD");
  EXPECT_EQ(buffer.client, kMe.client);
  ASSERT_TRUE(buffer.imported.has_value());
  EXPECT_EQ(buffer.imported->mapped_bytes, kBytes);
  EXPECT_EQ(buffer.imported->pid, ::getpid());
  EXPECT_EQ(buffer.imported->uid, static_cast<int64_t>(::getuid()));
  EXPECT_EQ(buffer.charged_bytes, 0);
  EXPECT_EQ(store_->Count().loans, 1);
  EXPECT_EQ(LentBytes(), kBytes);
  EXPECT_EQ(store_->Count().largest_owner_bytes, kBytes * devices())
      << "Make's, without the import";
  EXPECT_LE(ledger_->UseOf(0).free(), free);
  EXPECT_EQ(Read<float>({.name = lender.buffer}).value(), std::vector<float>(kBytes / 4, 3));
  // In place: the next read sees what the client writes, and a Publish numbers it.
  Fill(lender.memory, 4);
  EXPECT_EQ(lender.peer.Ask(PublishMessage(lender.grant)).message.published().version(), 2u);
  EXPECT_EQ(Read<float>({.name = lender.buffer, .if_version = 2}).value(),
            std::vector<float>(kBytes / 4, 4));
  EXPECT_REFUSED(Read<float>({.name = lender.buffer, .if_version = 1}), kAborted, "VERSION");
  ASSERT_OK_AND_ASSIGN(
      const BufferStatus sum,
      store_->Apply({.input = lender.buffer,
                     .operations = {ScaleOp{.scalar = Scalar::kF32, .multiply = {2, 0}}},
                     .output = {}},
                    kMe));
  EXPECT_EQ(Read<float>({.name = sum.name}).value(), std::vector<float>(kBytes / 4, 8));
  EXPECT_FALSE(sum.imported.has_value());
  lender.peer.Close();
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  ExpectGone(lender.buffer, "the client that lent its memory has gone");
  store_->FlushWatches();
  EXPECT_THAT(told,
              ::testing::Contains(HasSubstr("REVOKED the client that lent its memory has gone")));
  EXPECT_EQ(store_->Count().gone["revoked"], 1);
  lender.memory = Lend();
  EXPECT_LE(OpenDescriptors(), descriptors + 2);  // the memory of now
}

TEST_P(BufferImportTest, TheServerDoesNotWriteIt) {
  Lender lender = Import();
  const std::vector<float> values(kBytes / 4, 1);
  EXPECT_REFUSED(Write(lender.buffer, values), kFailedPrecondition, "IMPORTED");
  const BufferStatus other = Make(Scalar::kF32, kShape);
  EXPECT_REFUSED(
      store_->Apply({.input = other.name, .operations = {CopyOp{}}, .output = lender.buffer}, kMe),
      kFailedPrecondition, "IMPORTED");
  EXPECT_REFUSED(
      store_->Apply({.input = lender.buffer, .operations = {CopyOp{}}, .output = lender.buffer},
                    kMe),
      kFailedPrecondition, "IMPORTED");
  EXPECT_REFUSED(store_->Sync(lender.buffer, 0, {}, "", kMe), kFailedPrecondition, "IMPORTED");
  Fill(lender.memory, 5);
  EXPECT_THAT(
      store_->Apply({.input = lender.buffer, .operations = {CopyOp{}}, .output = other.name}, kMe),
      IsOk());
  EXPECT_EQ(Read<float>({.name = other.name}).value()[7], 5);
}

TEST_P(BufferImportTest, RequestsThatNoMemoryCanMeet) {
  const auto refused = [&](BufferImportSpec spec) {
    return store_->Import(spec, kMe, ::getuid()).status();
  };
  BufferImportSpec spec = Spec();
  spec.kind = GetParam() == "host" ? ImportKind::kCudaVmm : ImportKind::kHostMemfd;
  EXPECT_REFUSED(refused(spec), kInvalidArgument, "IMPORT_KIND");
  EXPECT_THAT(refused(spec).message(),
              HasSubstr(absl::StrCat("backend and takes ",
                                     GetParam() == "host" ? "HOST_MEMFD" : "CUDA_VMM")));
  spec = Spec();
  spec.byte_size = kBytes - 1;
  EXPECT_REFUSED(refused(spec), kInvalidArgument, "IMPORT_SIZE");
  spec.byte_size = ~uint64_t{0};
  EXPECT_REFUSED(refused(spec), kInvalidArgument, "IMPORT_SIZE");
  spec.byte_size = uint64_t{1} << 40;
  EXPECT_REFUSED(refused(spec), kResourceExhausted, "IMPORTS");
  spec = Spec();
  spec.array.devices = {99};
  EXPECT_REFUSED(refused(spec), kInvalidArgument, "BAD_FIELD");
  EXPECT_REFUSED(refused(Spec(Scalar{}, kShape)), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(refused(Spec(Scalar::kU8, {})), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(refused(Spec(Scalar::kU8, {1 << 20, 1 << 20})), kInvalidArgument,
                 "TOO_MANY_ELEMENTS");
  spec = Spec();
  spec.array.is_private = true;
  EXPECT_REFUSED(refused(spec), kInvalidArgument, "BAD_FIELD");
  spec = Spec();
  spec.array.ttl_seconds = 0.5;
  EXPECT_REFUSED(refused(spec), kInvalidArgument, "BAD_FIELD");
  spec = Spec();
  spec.session_secret = "nobody's";
  EXPECT_REFUSED(refused(spec), kNotFound, "NO_SESSION");
  devices_[0]->broken = true;
  EXPECT_REFUSED(refused(Spec()), kUnavailable, "DEVICE_DOWN");
  devices_[0]->broken = false;
  context_.handoff = nullptr;
  BufferStore other(context_);
  EXPECT_REFUSED(other.Import(Spec(), kMe, ::getuid()), kFailedPrecondition, "HANDOFF_DISABLED");
  EXPECT_EQ(socket_->Count().waiting, 0);
}

TEST_P(BufferImportTest, MemoryThatIsRefusedLeavesNothing) {
  const size_t before = OpenDescriptors();
  struct Case {
    std::string what, reason;
    std::function<UniqueFd()> memory;
  };
  const auto file = [](int64_t bytes, int seals) {
    const LentMemory lent = LentMemory::File(bytes, seals);
    return UniqueFd(::fcntl(lent.fd(), F_DUPFD_CLOEXEC, 0));
  };
  std::vector<Case> cases = {
      {"a regular file", "IMPORT_KIND",
       [&] {
         UniqueFd fd(::open((folder_.path() + "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
         EXPECT_EQ(::ftruncate(fd.get(), kBytes), 0);
         return fd;
       }},
      {"/dev/null", "IMPORT_KIND",
       [] { return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }},
      {"a socket", "IMPORT_KIND",
       [] { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }}};
  if (GetParam() == "host") {
    const int good = octavo::testing::kLentSeals;
    cases.push_back({"less", "IMPORT_SIZE", [=] { return file(kBytes - 4096, good); }});
    cases.push_back({"more", "IMPORT_SIZE", [=] { return file(kBytes + 4096, good); }});
    cases.push_back({"not sealed", "IMPORT_NOT_SEALED", [=] { return file(kBytes, 0); }});
    cases.push_back(
        {"may shrink", "IMPORT_NOT_SEALED", [=] { return file(kBytes, F_SEAL_FUTURE_WRITE); }});
    cases.push_back(
        {"may have holes", "IMPORT_NOT_SEALED", [=] { return file(kBytes, F_SEAL_SHRINK); }});
  } else {
    cases.push_back({"memory of the host", "IMPORT_KIND",
                     [=] { return file(kBytes, octavo::testing::kLentSeals); }});
  }
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    HandoffPeer peer(path_, wire::PURPOSE_IMPORT);
    const ImportTicket ticket = Ticket();
    const UniqueFd memory = one.memory();
    ASSERT_TRUE(memory);
    const auto refused = peer.Ask(PresentMessage(ticket.ticket.nonce), memory.get());
    EXPECT_EQ(refused.reason(), one.reason) << refused.message.DebugString();
    EXPECT_EQ(refused.message.refused().field(), "descriptor");
    EXPECT_EQ(peer.Ask(PresentMessage(ticket.ticket.nonce), memory.get()).reason(), "TICKET_USED");
    EXPECT_REFUSED(store_->Get(ticket.buffer, kMe), kNotFound, "NO_BUFFER");
    EXPECT_EQ(Lent(), 0);
    // The connection is as good as before.
    const ImportTicket next = Ticket();
    const LentMemory lent = Lend();
    EXPECT_EQ(peer.Ask(PresentMessage(next.ticket.nonce), lent.fd()).message.imported().name(),
              next.buffer);
    peer.Close();
    EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  }
  EXPECT_TRUE(Settles([&] { return OpenDescriptors() <= before; })) << OpenDescriptors();
}

TEST_P(BufferImportTest, DescriptorsThatAreMissingOrTooMany) {
  const LentMemory lent = Lend();
  const ImportTicket ticket = Ticket();
  const auto present = PresentMessage(ticket.ticket.nonce);
  HandoffPeer peer(path_, wire::PURPOSE_IMPORT);
  EXPECT_EQ(peer.Ask(present).reason(), "PROTOCOL");
  for (const size_t count : {2u, 3u, 100u}) {
    const std::vector<int> many(count, lent.fd());
    const std::string bytes = present.SerializeAsString();
    iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), many.data(), count * sizeof(int));
    ASSERT_GT(::sendmsg(peer.fd(), &header, MSG_NOSIGNAL), 0);
    const auto refused = peer.Receive();
    EXPECT_EQ(refused.reason(), "PROTOCOL");
    EXPECT_THAT(refused.message.refused().message(), HasSubstr("more descriptors than 1"));
  }
  // Nor with another message, or a message that cannot be read, or before Hello.
  EXPECT_EQ(peer.Ask(PublishMessage(1), lent.fd()).reason(), "PROTOCOL");
  EXPECT_EQ(peer.Ask(EndMessage(1), lent.fd()).reason(), "PROTOCOL");
  ASSERT_TRUE(peer.SendBytes("{}", lent.fd()));
  EXPECT_EQ(peer.Receive().reason(), "PROTOCOL");
  auto silent = HandoffPeer::Silent(path_);
  EXPECT_EQ(silent.Ask(HelloMessage(wire::PURPOSE_IMPORT), lent.fd()).reason(), "PROTOCOL");
  // Other purposes take none, and no ticket of an import.
  HandoffPeer memory(path_, wire::PURPOSE_MEMORY);
  EXPECT_EQ(memory.Ask(present, lent.fd()).reason(), "PROTOCOL");
  EXPECT_EQ(memory.Ask(present).reason(), "TICKET_KIND");
  // After all this the ticket is good.
  const auto answer = peer.Ask(present, lent.fd());
  EXPECT_EQ(answer.message.imported().name(), ticket.buffer) << answer.message.DebugString();
  // A grant of an import takes what it takes.
  EXPECT_EQ(peer.Ask(TakeMessage(answer.message.grant(), "volumes/1")).reason(), "PROTOCOL");
  EXPECT_EQ(peer.Ask(PublishMessage(answer.message.grant() + 1)).reason(), "NO_GRANT");
  memory.Close();
  silent.Close();
  peer.Close();
}

TEST_P(BufferImportTest, ATicketIsGoodOnceInTimeForItsUser) {
  Lender lender = Import();
  const ImportTicket late = Ticket();
  clock_.Advance(31);
  HandoffPeer peer(path_, wire::PURPOSE_IMPORT);
  EXPECT_EQ(peer.Ask(PresentMessage(late.ticket.nonce), lender.memory.fd()).reason(),
            "TICKET_EXPIRED");
  EXPECT_EQ(peer.Ask(PresentMessage(std::string(32, 'a')), lender.memory.fd()).reason(),
            "TICKET_UNKNOWN");
  ASSERT_OK_AND_ASSIGN(const ImportTicket others, store_->Import(Spec(), kMe, ::getuid() + 1));
  EXPECT_EQ(peer.Ask(PresentMessage(others.ticket.nonce), lender.memory.fd()).reason(),
            "WRONG_PEER");
  EXPECT_EQ(Lent(), 1);
  store_->BeginDrain();
  EXPECT_REFUSED(store_->Import(Spec(), kMe, ::getuid()), kUnavailable, "DRAINING");
  EXPECT_THAT(Read<float>({.name = lender.buffer}), IsOk());
  lender.peer.Close();
  peer.Close();
}

TEST_P(BufferImportTest, ARetryGetsTheSameTicket) {
  BufferImportSpec spec = Spec();
  spec.array.request_id = "once";
  spec.array.request_digest = "a";
  const ImportTicket first = Ticket(spec), again = Ticket(spec);
  EXPECT_EQ(first.buffer, again.buffer);
  EXPECT_EQ(first.ticket.nonce, again.ticket.nonce);
  EXPECT_EQ(first.expires_unix_ns, again.expires_unix_ns);
  EXPECT_EQ(socket_->Count().waiting, 1);
  BufferImportSpec other = spec;
  other.array.request_digest = "b";
  EXPECT_REFUSED(store_->Import(other, kMe, ::getuid()), kAlreadyExists, "IDEMPOTENCY_MISMATCH");
  Lender lender{
      .memory = Lend(), .peer = HandoffPeer(path_, wire::PURPOSE_IMPORT), .buffer = first.buffer};
  Present(lender, first);
  EXPECT_EQ(Ticket(spec).ticket.nonce, first.ticket.nonce);
  lender.peer.Close();
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  const auto gone = store_->Import(spec, kMe, ::getuid());
  EXPECT_REFUSED(gone, kNotFound, "NO_BUFFER");
  EXPECT_THAT(gone.status().message(), HasSubstr("has gone"));
}

TEST_P(BufferImportTest, TheClientIsToldHowItEnds) {
  using Ended = wire::ImportEnded;
  {
    Lender lender = Import();
    EXPECT_THAT(store_->Destroy(lender.buffer, "", "", {.client = "another", .key = ""}), IsOk());
    ExpectEnded(lender.peer, lender.buffer, Ended::WHY_DESTROYED);
    ExpectGone(lender.buffer, "destroyed by a client");
    EXPECT_EQ(lender.peer.Ask(PublishMessage(lender.grant)).reason(), "NO_BUFFER");
    EXPECT_TRUE(lender.peer.Ask(EndMessage(lender.grant)).message.has_ended());
    EXPECT_EQ(lender.peer.Ask(EndMessage(lender.grant)).reason(), "NO_GRANT");
  }
  {
    Lender lender = Import();
    ASSERT_TRUE(lender.peer.Send(EndMessage(lender.grant)));
    ExpectEnded(lender.peer, lender.buffer, Ended::WHY_RELEASED);
    ExpectGone(lender.buffer, "took it back");
  }
  {
    BufferImportSpec spec = Spec();
    spec.array.ttl_seconds = 10;
    Lender lender = Import(spec);
    clock_.Advance(9);
    EXPECT_EQ(lender.peer.Ask(PublishMessage(lender.grant)).message.published().version(), 2u);
    clock_.Advance(9);
    store_->Housekeep();
    EXPECT_THAT(store_->Get(lender.buffer, kMe), IsOk()) << "the Publish began its time anew";
    clock_.Advance(2);
    store_->Housekeep();
    ExpectEnded(lender.peer, lender.buffer, Ended::WHY_EXPIRED);
    ExpectGone(lender.buffer, "time to live");
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto session, sessions_.Open("me"));
    BufferImportSpec spec = Spec();
    spec.session_secret = session.secret;
    Lender lender = Import(spec), other = Import();
    const ImportTicket waiting = Ticket(spec);
    EXPECT_EQ(store_->Get(lender.buffer, kMe)->imported->session, session.session.name);
    ASSERT_THAT(sessions_.Close(session.secret), IsOk());
    const auto ended = sessions_.Expire();
    store_->EndSessions({ended.begin(), ended.end()});
    ExpectEnded(lender.peer, lender.buffer, Ended::WHY_SESSION_ENDED);
    ExpectGone(lender.buffer, session.session.name);
    EXPECT_THAT(store_->Get(other.buffer, kMe), IsOk());
    EXPECT_EQ(other.peer.Ask(PresentMessage(waiting.ticket.nonce), lender.memory.fd()).reason(),
              "NO_SESSION");
  }
}

TEST_P(BufferImportTest, AClientThatDiesAtAnyStep) {
  const size_t before = OpenDescriptors();
  for (int step = 0; step < 7; ++step) {
    SCOPED_TRACE(step);
    const ImportTicket ticket = Ticket();
    LentMemory lent = Lend();
    HandoffPeer peer =
        step < 2 ? HandoffPeer::Silent(path_) : HandoffPeer(path_, wire::PURPOSE_IMPORT);
    if (step == 1) ASSERT_TRUE(peer.Send(HelloMessage(wire::PURPOSE_IMPORT)));
    if (step == 3) ASSERT_TRUE(peer.Send(PresentMessage(ticket.ticket.nonce)));  // no memory
    if (step >= 4) ASSERT_TRUE(peer.Send(PresentMessage(ticket.ticket.nonce), lent.fd()));
    uint64_t grant = 0;
    if (step >= 5) grant = peer.Receive().message.grant();
    if (step == 6) ASSERT_TRUE(peer.Send(PublishMessage(grant)));
    peer.Close();
    EXPECT_TRUE(Settles([&] { return socket_->Count().connections == 0 && Lent() == 0; }));
    EXPECT_REFUSED(store_->Get(ticket.buffer, kMe), kNotFound, "NO_BUFFER");
  }
  clock_.Advance(31);
  EXPECT_TRUE(Settles([&] { return socket_->Count().waiting == 0; }));
  EXPECT_TRUE(Settles([&] { return OpenDescriptors() <= before; })) << OpenDescriptors();
}

TEST_P(BufferImportTest, WorkInFlightIsWaitedForBeforeTheMemoryGoes) {
  WarmUp();
  Lender lender = Import();
  Fill(lender.memory, 6);
  const BufferStatus output = Make(Scalar::kF32, kShape, 1, {0});
  DelayDevices(400'000'000);
  ASSERT_THAT(
      store_->Apply({.input = lender.buffer, .operations = {CopyOp{}}, .output = output.name}, kMe),
      IsOk());
  lender.peer.Close();
  ASSERT_TRUE(Settles([&] { return !store_->Get(lender.buffer, kMe).ok(); }));
  EXPECT_EQ(Lent(), 1) << "the operation still reads it";
  EXPECT_EQ(LentBytes(), kBytes);
  ExpectGone(lender.buffer, "has gone");
  EXPECT_EQ(Read<float>({.name = output.name}).value(), std::vector<float>(kBytes / 4, 6));
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
}

TEST_P(BufferImportTest, LeasesOfOthersHoldOffADestroyButNoDeath) {
  Lender lender = Import();
  ASSERT_OK_AND_ASSIGN(const auto lease, leases_.TryAcquire({.resource = lender.buffer,
                                                             .mode = LeaseMode::kExclusive,
                                                             .session = {},
                                                             .holder = "another",
                                                             .seconds = 100}));
  EXPECT_REFUSED(store_->Destroy(lender.buffer, "", "", kMe), kAborted, "LEASED");
  EXPECT_EQ(lender.peer.Ask(PublishMessage(lender.grant)).message.published().version(), 2u);
  lender.peer.Close();
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  EXPECT_REFUSED(leases_.Renew(lease.token, 10), kFailedPrecondition, "LEASE_LOST");
}

TEST_P(BufferImportTest, LongReadsEndWithTheMemory) {
  constexpr int64_t kLong = int64_t{32} << 20;
  Lender lender = Import(Spec(Scalar::kU8, {static_cast<uint64_t>(kLong)}), kLong);
  // A Publish in the middle: the bytes that follow are other ones.
  ASSERT_OK_AND_ASSIGN(const auto torn, store_->OpenRead({.name = lender.buffer}, kMe));
  ASSERT_THAT(torn->Next(1 << 20), IsOk());
  EXPECT_EQ(lender.peer.Ask(PublishMessage(lender.grant)).message.published().version(), 2u);
  absl::Status status;
  for (int i = 0; i < 40 && status.ok(); ++i) status = torn->Next(1 << 20).status();
  EXPECT_REFUSED(status, kAborted, "VERSION");
  // The death of the client: a reader that takes nothing keeps the memory no longer.
  ASSERT_OK_AND_ASSIGN(const auto reader, store_->OpenRead({.name = lender.buffer}, kMe));
  ASSERT_THAT(reader->Next(1 << 20), IsOk());
  EXPECT_REFUSED(store_->Destroy(lender.buffer, "", "", kMe), kAborted, "LEASED");
  lender.peer.Close();
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  for (int i = 0; i < 40 && (status = reader->Next(1 << 20).status()).ok(); ++i) {
  }
  EXPECT_REFUSED(status, kDataLoss, "LOST");
}

TEST_P(BufferImportTest, AConnectionLendsNoMoreThanItMay) {
  Serve({.most_loans = 3, .most_bytes = 5 * kBytes});
  Lender lender = Import();
  const LentMemory large = Lend(4 * kBytes), small = Lend();
  const auto present = [&](const LentMemory& memory) {
    BufferImportSpec spec = Spec(Scalar::kU8, {static_cast<uint64_t>(memory.bytes())});
    return lender.peer.Ask(PresentMessage(Ticket(spec).ticket.nonce), memory.fd());
  };
  const auto second = present(large);
  EXPECT_TRUE(second.message.has_imported());
  EXPECT_EQ(present(small).reason(), "IMPORTS") << "bytes";
  EXPECT_EQ(Lent(), 2);
  ASSERT_TRUE(lender.peer.Send(EndMessage(second.message.grant())));
  ExpectEnded(lender.peer, second.message.imported().name(), wire::ImportEnded::WHY_RELEASED);
  std::string told;
  for (int i = 0; i < 4; ++i) {
    auto answer = present(small);
    if (answer.message.has_ended()) answer = lender.peer.Receive();  // of the End before
    absl::StrAppend(&told, answer.message.has_imported() ? "imported " : answer.reason() + " ");
  }
  EXPECT_EQ(told, "imported imported IMPORTS IMPORTS ") << "buffers";
  HandoffPeer other(path_, wire::PURPOSE_IMPORT);  // another connection has its own
  EXPECT_TRUE(
      other.Ask(PresentMessage(Ticket(Spec()).ticket.nonce), small.fd()).message.has_imported());
  EXPECT_EQ(Lent(), 4);
  other.Close();
  lender.peer.Close();
}

TEST_P(BufferImportTest, AServerWithoutDescriptorsRefusesAndGoesOn) {
  const ImportTicket ticket = Ticket();
  Lender lender{
      .memory = Lend(), .peer = HandoffPeer(path_, wire::PURPOSE_IMPORT), .buffer = ticket.buffer};
  const int memory = lender.memory.fd();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // The next descriptor would have this number.
  const int next = UniqueFd(::dup(0)).get();
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool sent = lender.peer.Send(PresentMessage(ticket.ticket.nonce), memory);
  const auto refused = lender.peer.Receive();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(sent);
  EXPECT_EQ(refused.reason(), "NO_DESCRIPTORS") << refused.message.DebugString();
  Present(lender, ticket);  // nothing has changed
  lender.peer.Close();
}

// Whoever ends it first, it ends once, and nothing hangs or is left.
TEST_P(BufferImportTest, DestroyAndDeathRace) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const auto below = [&](int end) {
    return std::uniform_int_distribution<int>(0, end - 1)(random);
  };
  const BufferStatus output = Make(Scalar::kF32, kShape, 1, {0});
  for (int turn = 0; turn < 150; ++turn) {
    Lender lender = Import();
    Fill(lender.memory, static_cast<float>(turn));
    const int pause = below(200), end = below(3);
    std::atomic<bool> go{false};
    std::thread worker([&] {
      while (!go) continue;
      for (int i = 0; i < 3; ++i) {
        (void)store_->Apply(
            {.input = lender.buffer, .operations = {CopyOp{}}, .output = output.name}, kMe);
        (void)Read<float>({.name = lender.buffer, .start = {0, 0}, .count = {1, 16}});
      }
    });
    std::thread destroyer([&] {
      while (!go) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
      const absl::Status done = store_->Destroy(lender.buffer, "", "", kMe);
      EXPECT_TRUE(done.ok() || absl::IsAborted(done) || absl::IsNotFound(done)) << done;
    });
    go = true;
    if (end == 0) (void)lender.peer.Send(PublishMessage(lender.grant));
    if (end == 1) (void)lender.peer.Send(EndMessage(lender.grant));
    std::this_thread::sleep_for(std::chrono::microseconds(below(200)));
    lender.peer.Close();
    worker.join();
    destroyer.join();
  }
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  BufferTotals totals = store_->Count();
  EXPECT_EQ(totals.gone["destroyed"] + totals.gone["revoked"], 150);
}

TEST_P(BufferImportTest, TheStopOfTheSocketEndsAll) {
  Lender lender = Import();
  const ImportTicket waiting = Ticket();
  socket_->Stop();
  EXPECT_TRUE(Settles([&] { return Lent() == 0; }));
  ExpectGone(lender.buffer, "the server stopped");
  EXPECT_REFUSED(store_->Import(Spec(), kMe, ::getuid()), kUnavailable, "DRAINING");
  EXPECT_TRUE(lender.peer.Receive().ended);
}

TEST(ImportKinds, HaveTheNumbersOfTheWire) {
  for (const ImportKind kind : {ImportKind::kHostMemfd, ImportKind::kCudaVmm}) {
    EXPECT_EQ(wire::MemoryKind_Name(static_cast<wire::MemoryKind>(kind)),
              absl::StrCat("MEMORY_KIND_", Name(kind)));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BufferImportTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
