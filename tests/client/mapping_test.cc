// Client::Map against a daemon in this process: memory files, and memory of a GPU if there is one.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "octavo/v1/buffer.grpc.pb.h"
#include "octavo/v1/export.grpc.pb.h"
#include "octavo/v1/session.grpc.pb.h"

#include "client/cpp/include/octavo/octavo.h"
#include "client/cpp/lib/handoff.h"
#include "gpu/base/status.h"
#include "tests/client/client_support.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/lent_memory.h"

namespace octavo::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::OpenDescriptors;
using testing::Thrown;
using testing::Until;

constexpr double kGraceSeconds = 0.2;

class MappingTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(daemon_, testing::StartDaemon(folder_, [](Config& config) {
                           config.backend = GetParam();
                           config.handoff_unix = "auto";
                           config.handoff_grace_seconds = kGraceSeconds;
                         }));
    client_ = std::make_unique<Client>(daemon_->addresses().at(0));
    channel_ = grpc::CreateChannel(client_->address(), grpc::InsecureChannelCredentials());
    buffers_ = v1::BufferService::NewStub(channel_);
    exports_ = v1::ExportService::NewStub(channel_);
  }
  void TearDown() override { Stop(); }
  static bool OnHost() { return GetParam() == "host"; }
  void Stop() {
    if (daemon_ != nullptr)
      daemon_->Drain({.hurry = [] { return true; }, .may_take = [](double, const char*) {}});
    daemon_ = nullptr;
  }
  std::vector<std::string> Volumes(uint32_t count = 1, uint64_t seed = 3) {
    const Scan scan = client_->WaitScan(
        client_
            ->SubmitScan(
                {.source = Simulated{.seed = seed, .as_fast_as_possible = true},
                 .pattern = {.ascans_per_bscan = 40, .bscans_per_volume = 12, .volumes = count},
                 .samples_per_record = 256})
            .name);
    EXPECT_EQ(scan.volumes.size(), count);
    return scan.volumes;
  }
  std::vector<v1::ExportStatus> Exports() {
    grpc::ClientContext context;
    v1::ListExportsResponse response;
    EXPECT_TRUE(exports_->ListExports(&context, {}, &response).ok());
    return {response.exports().begin(), response.exports().end()};
  }
  void Revoke(const std::string& name) {
    grpc::ClientContext context;
    v1::RevokeExportRequest request;
    request.set_name(name);
    v1::RevokeExportResponse response;
    EXPECT_TRUE(exports_->RevokeExport(&context, request, &response).ok());
  }
  void ExpectSame(const Mapped& mapped, const std::string& volume) {
    const Array read = client_->Read(volume);
    EXPECT_EQ(mapped.info().shape, read.shape);
    const auto bytes = mapped.Copy();
    ASSERT_EQ(bytes.size(), read.data.size());
    EXPECT_EQ(std::memcmp(bytes.data(), read.data.data(), bytes.size()), 0);
  }

  octavo::testing::TempFolder folder_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::BufferService::Stub> buffers_;
  std::unique_ptr<v1::ExportService::Stub> exports_;
};

TEST_P(MappingTest, FramesOfASubscriptionComeInMemory) {
  const Scan scan = client_->SubmitScan(
      {.source = Simulated{.seed = 5},
       .pattern = {.ascans_per_bscan = 40, .bscans_per_volume = 12, .volumes = 6},
       .samples_per_record = 256,
       .record_rate_hz = 480});  // six seconds: a busy machine subscribes late
  FrameStream frames = client_->Subscribe({.parent = scan.name,
                                           .products = {Product::kMip, Product::kVolume},
                                           .delivery = Delivery::kLossless,
                                           .queue_length = 16,
                                           .preview = false,
                                           .same_host = true});
  size_t volumes = 0;
  std::vector<Frame> kept;  // each has its own bytes
  for (Frame& frame : frames) kept.push_back(std::move(frame));
  for (const Frame& frame : kept) {
    if (frame.product != Product::kVolume) continue;
    EXPECT_EQ(frame.array.data, client_->Read(frame.volume).data) << frame.volume;
    ++volumes;
  }
  EXPECT_GE(volumes, 1u);
  EXPECT_EQ(client_->GetScan(scan.name).state, ScanState::kDone);
  EXPECT_EQ(Thrown([&] {
              (void)client_->Subscribe({.parent = "scans/none-1", .same_host = true});
            }).reason,
            "NO_SCAN");
}

TEST_P(MappingTest, AVolumeIsItsBytesWithoutACopy) {
  const auto volumes = Volumes();
  Mapped mapped = client_->Map(volumes[0]);
  ExpectSame(mapped, volumes[0]);
  const MappedInfo& info = mapped.info();
  EXPECT_EQ(info.kind, OnHost() ? MemoryKind::kHostMemfd : MemoryKind::kCudaVmm);
  EXPECT_EQ(info.of, volumes[0]);
  EXPECT_EQ(info.digest, client_->GetVolume(volumes[0]).digest);
  EXPECT_EQ(info.scalar, "u16");
  EXPECT_EQ(info.lanes, 1u);
  EXPECT_EQ(info.bytes, 12 * 40 * 128 * 2);
  EXPECT_EQ(mapped.device(), OnHost() ? -1 : 0);
  EXPECT_THROW(mapped.as<float>(), std::logic_error);
  if (OnHost()) {
    EXPECT_EQ(static_cast<const void*>(mapped.as<uint16_t>().data()), mapped.data());
  }
  auto exports = Exports();
  ASSERT_EQ(exports.size(), 1u);
  EXPECT_EQ(exports[0].name(), info.name);
  EXPECT_EQ(exports[0].pid(), ::getpid());
  EXPECT_EQ(Thrown([&] { client_->DiscardVolume(volumes[0]); }).reason, "EXPORTED");
  mapped.Check();
  Mapped moved = std::move(mapped);
  moved.Release();
  moved.Release();  // a second call does no harm
  EXPECT_EQ(Thrown([&] { moved.Check(); }).reason, "RELEASED");
  EXPECT_EQ(Thrown([&] { (void)moved.Copy(); }).reason, "RELEASED");
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
  client_->DiscardVolume(volumes[0]);
}

TEST_P(MappingTest, ALaterVolumeInAMappedSlotIsOneMessage) {
  const auto volumes = Volumes(2);
  uint64_t generation = 0;
  const void* address = nullptr;
  std::string memory;
  {
    const Mapped first = client_->Map(volumes[0]);
    generation = first.info().generation;
    address = first.data();
    memory = first.info().memory;
    const Mapped again = client_->Map(volumes[0]);  // the same generation of the same memory
    EXPECT_EQ(again.info().generation, generation);
    EXPECT_EQ(again.data(), address);
    EXPECT_NE(again.info().name, first.info().name);
  }
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
  const size_t descriptors = OpenDescriptors();
  for (int turn = 0; turn < 20; ++turn) {
    const Mapped first = client_->Map(volumes[0]), second = client_->Map(volumes[1]);
    EXPECT_EQ(first.info().memory, memory);
    EXPECT_EQ(first.data(), address);
    EXPECT_NE(second.data(), address);
    EXPECT_EQ(first.info().generation, generation);
    ExpectSame(second, volumes[1]);
  }
  // Neither side keeps a descriptor. Earlier connections of this process may still end.
  EXPECT_TRUE(Until([&] { return OpenDescriptors() <= descriptors; }));
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
  client_->DiscardVolume(volumes[0]);
  client_->DiscardVolume(volumes[1]);
  // The slots of the ended scan serve the next one: the mapped memory now holds other bytes.
  const auto later = Volumes(2, 4);
  bool reused = false;
  for (const auto& name : later) {
    const Mapped mapped = client_->Map(name);
    ExpectSame(mapped, name);
    if (mapped.info().memory != memory) continue;
    reused = true;
    EXPECT_EQ(mapped.data(), address);
    EXPECT_GT(mapped.info().generation, generation);
  }
  EXPECT_TRUE(reused);
  client_->ForgetMappings();
  const Mapped anew = client_->Map(later[0]);  // the server sends a descriptor again
  ExpectSame(anew, later[0]);
}

TEST_P(MappingTest, Revocation) {
  const auto volumes = Volumes(2);
  Mapped mapped = client_->Map(volumes[0]);
  EXPECT_EQ(mapped.Revoked(), std::nullopt);
  EXPECT_EQ(mapped.WaitRevoked(milliseconds(1)), std::nullopt);
  auto waiting = std::async(std::launch::async, [&] { return mapped.WaitRevoked(seconds(20)); });
  Revoke(mapped.info().name);
  EXPECT_EQ(waiting.get(), kGraceSeconds);
  const Error revoked = Thrown([&] { mapped.Check(); });
  EXPECT_EQ(revoked.reason, "EXPORT_REVOKED");
  EXPECT_EQ(revoked.code, Code::kFailedPrecondition);
  const Bytes before = mapped.Copy();
  ASSERT_TRUE(Until([&] {
    const auto exports = Exports();
    return exports.size() == 1 && exports[0].overdue();
  }));
  const Error refused =
      Thrown([&] { client_->Map(volumes[1]); });  // over the socket, with the existing connection
  EXPECT_EQ(refused.reason, "EXPORT_REFUSED");
  EXPECT_EQ(refused.code, Code::kPermissionDenied);
  EXPECT_EQ(mapped.Copy(), before);
  mapped.Release();
  ASSERT_TRUE(Until([&] { return Exports().empty(); }));
  ExpectSame(client_->Map(volumes[1]), volumes[1]);
}

TEST_P(MappingTest, BuffersNeedAnExclusiveLease) {
  v1::CreateBufferRequest create;
  create.mutable_type()->set_dtype(v1::DTYPE_F32);
  create.mutable_type()->set_lanes(2);
  create.add_shape(6);
  create.add_shape(5);
  v1::CreateBufferResponse answer;
  {
    grpc::ClientContext context;
    const auto status = buffers_->CreateBuffer(&context, create, &answer);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(Thrown([&] { client_->Map(answer.buffer().name()); }).reason, "EXPORT_LEASE");
  const auto sessions = v1::SessionService::NewStub(channel_);
  v1::AcquireLeaseRequest ask;
  ask.set_resource(answer.buffer().name());
  ask.set_mode(v1::LEASE_MODE_EXCLUSIVE);
  ask.mutable_ttl()->set_seconds(60);
  v1::AcquireLeaseResponse lease_answer;
  {
    grpc::ClientContext context;
    const auto status = sessions->AcquireLease(&context, ask, &lease_answer);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const Mapped mapped = client_->Map(
      answer.buffer().name(),
      {.lease_token = lease_answer.lease().token(), .lease_fence = lease_answer.lease().fence()});
  EXPECT_EQ(mapped.info().of, answer.buffer().name());
  EXPECT_EQ(mapped.info().scalar, "f32");
  EXPECT_EQ(mapped.info().lanes, 2u);
  EXPECT_THAT(mapped.info().shape, ElementsAre(6, 5));
  EXPECT_EQ(mapped.Copy(), Bytes(240, std::byte{0}));
  EXPECT_EQ(Thrown([&] {
              client_->Map(answer.buffer().name(),
                           {.replica = 7, .lease_token = lease_answer.lease().token()});
            }).reason,
            "BAD_REPLICA");
}

TEST_P(MappingTest, ErrorsOfTheServerAreTyped) {
  const auto volumes = Volumes();
  const Error none = Thrown([&] { client_->Map("volumes/none"); });
  EXPECT_EQ(none.code, Code::kNotFound);
  EXPECT_EQ(none.reason, "NO_VOLUME");
  const Error kind = Thrown([&] {
    client_->Map(volumes[0],
                 {.accept = {OnHost() ? MemoryKind::kCudaVmm : MemoryKind::kHostMemfd}});
  });
  EXPECT_EQ(kind.code, Code::kUnimplemented);
  EXPECT_EQ(kind.reason, "EXPORT_KIND");
  const Mapped mapped = client_->Map(
      volumes[0], {.accept = {OnHost() ? MemoryKind::kHostMemfd : MemoryKind::kCudaVmm}});
  const Error taken = Thrown([&] { client_->Map("volumes/none"); });  // now over the socket
  EXPECT_EQ(taken.code, Code::kNotFound);
  EXPECT_EQ(taken.reason, "NO_VOLUME");
  EXPECT_EQ(taken.field, "name");
}

TEST_P(MappingTest, WhatIsMappedOutlivesClientAndServer) {
  const auto volumes = Volumes();
  std::unique_ptr<Mapped> mapped;
  {
    Client other(client_->address());
    mapped = std::make_unique<Mapped>(other.Map(volumes[0]));
  }
  mapped->Check();
  const Bytes before = mapped->Copy();
  const Mapped second = client_->Map(volumes[0]);
  Stop();
  const Error gone = Thrown([&] { mapped->Check(); });
  EXPECT_EQ(gone.code, Code::kUnavailable);
  EXPECT_EQ(gone.reason, "SERVER_GONE");
  EXPECT_EQ(mapped->Copy(), before);
  EXPECT_EQ(second.Copy(), before);
  EXPECT_EQ(Thrown([&] { client_->Map(volumes[0]); }).code, Code::kUnavailable);
  mapped->Release();
}

TEST_P(MappingTest, FromManyThreadsAtOnce) {
  const auto volumes = Volumes(3);
  std::vector<Array> truth;
  for (const auto& name : volumes) truth.push_back(client_->Read(name));
  std::vector<std::jthread> threads;
  std::atomic<int> right{0};
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t turn = 0; turn < 25; ++turn) {
        const size_t i = (t + turn) % volumes.size();
        const Mapped mapped = client_->Map(volumes[i]);
        right += std::memcmp(mapped.Copy().data(), truth[i].data.data(), truth[i].data.size()) == 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right, 100);
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
}

// The other way round: memory of this process as a buffer of the server.
TEST_P(MappingTest, LentMemoryIsABufferOfTheServer) {
  constexpr int64_t kBytes = 2 << 20;
  Device& device = octavo::testing::SharedDevice(GetParam());
  octavo::testing::LentMemory memory = octavo::testing::LentMemory::Of(device, kBytes);
  const ImportOptions options{.scalar = "u8", .shape = {2048, 1024}, .labels = {{"eye", "OD"}}};
  const auto read = [&](const std::string& name) {
    v1::ReadBufferRequest request;
    request.set_name(name);
    request.add_start(2047);
    request.add_start(0);
    grpc::ClientContext context;
    v1::ReadBufferResponse part;
    std::string bytes;
    const auto stream = buffers_->ReadBuffer(&context, request);
    while (stream->Read(&part)) bytes += part.data();
    EXPECT_TRUE(stream->Finish().ok());
    return bytes;
  };
  {
    Lent lent = client_->ImportBuffer(memory.fd(), options);
    EXPECT_EQ(lent.name().rfind("buffers/", 0), 0u);
    EXPECT_EQ(lent.Ended(), "");
    const std::string twos(kBytes, 2);
    memory.Write(twos.data(), kBytes);
    EXPECT_EQ(lent.Publish(), 2u);
    EXPECT_EQ(read(lent.name()), std::string(1024, 2));
    lent.Close();
    EXPECT_EQ(lent.Ended(), "RELEASED");
    lent.Close();
    EXPECT_EQ(Thrown([&] { lent.Publish(); }).reason, "NO_GRANT");
  }
  std::string name;
  {
    const Lent lent = client_->ImportBuffer(memory.fd(), options);  // its end is that of the buffer
    name = lent.name();
  }
  v1::GetBufferRequest get;
  get.set_name(name);
  EXPECT_TRUE(Until([&] {
    grpc::ClientContext context;
    v1::GetBufferResponse response;
    return buffers_->GetBuffer(&context, get, &response).error_code() ==
           grpc::StatusCode::NOT_FOUND;
  }));
  Lent destroyed = client_->ImportBuffer(memory.fd(), options);
  v1::DestroyBufferRequest destroy;
  destroy.set_name(destroyed.name());
  v1::DestroyBufferResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(buffers_->DestroyBuffer(&context, destroy, &response).ok());
  EXPECT_TRUE(Until([&] { return destroyed.Ended() == "DESTROYED"; }));
  EXPECT_EQ(Thrown([&] { destroyed.Publish(); }).reason, "NO_BUFFER");
  const UniqueFd file(::memfd_create("theirs", MFD_CLOEXEC));
  const Error refused = Thrown([&] { client_->ImportBuffer(file.get(), options); });
  EXPECT_EQ(refused.reason, OnHost() ? "IMPORT_NOT_SEALED" : "IMPORT_KIND");
  EXPECT_EQ(refused.field, "descriptor");
  EXPECT_EQ(Thrown([&] { client_->ImportBuffer(memory.fd(), {.scalar = "u9"}); }).field, "scalar");
  EXPECT_EQ(Thrown([&] { client_->ImportBuffer(memory.fd(), {.scalar = "u8"}); }).reason,
            "BAD_SHAPE");
  Lent last = client_->ImportBuffer(memory.fd(), options);
  Stop();
  EXPECT_TRUE(Until([&] { return last.Ended() == "SERVER_GONE"; }));
  EXPECT_EQ(Thrown([&] { last.Publish(); }).reason, "SERVER_GONE");
}

INSTANTIATE_TEST_SUITE_P(Backends, MappingTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::client
