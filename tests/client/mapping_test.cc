// Client::Map against a daemon in this process (memory files), and the driver's calls for memory of a GPU against a stand-in for libcuda.
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
#include "octavo/v1/session.grpc.pb.h"

#include "client/cpp/liboctavo/handoff.h"
#include "client/cpp/liboctavo/octavo.h"
#include "gpu/base/status.h"
#include "server/handoff/fd_socket.h"
#include "tests/client/client_support.h"

extern "C" {  // fake_cuda.cc
int fake_cuda_open();
int fake_cuda_mapped();
void fake_cuda_fail_access(int times);
int fake_cuda_synchronized();
}

namespace octavo::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Thrown;

constexpr double kGraceSeconds = 0.2;

size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

template <class Done>
bool Until(Done done) {
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

class MappingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(daemon_, testing::StartDaemon(folder_, [](Config& config) {
                           config.handoff_unix = "auto";
                           config.handoff_grace_seconds = kGraceSeconds;
                         }));
    client_ = std::make_unique<Client>(daemon_->addresses().at(0));
    channel_ = grpc::CreateChannel(client_->address(), grpc::InsecureChannelCredentials());
    buffers_ = v1::BufferService::NewStub(channel_);
  }
  void TearDown() override { Stop(); }
  void Stop() {
    if (daemon_ != nullptr) daemon_->Drain([] { return true; });
    daemon_ = nullptr;
  }
  std::vector<std::string> Volumes(uint32_t count = 1, uint64_t seed = 3) {
    const Scan scan = client_->WaitScan(client_
                                            ->SubmitScan({.source = Simulated{.seed = seed, .as_fast_as_possible = true},
                                                          .pattern = {.ascans_per_bscan = 40, .bscans_per_volume = 12, .volumes = count},
                                                          .samples_per_record = 256})
                                            .name);
    EXPECT_EQ(scan.volumes.size(), count);
    return scan.volumes;
  }
  std::vector<v1::ExportStatus> Exports() {
    grpc::ClientContext context;
    v1::ListExportsResponse response;
    EXPECT_TRUE(buffers_->ListExports(&context, {}, &response).ok());
    return {response.exports().begin(), response.exports().end()};
  }
  void Revoke(const std::string& name) {
    grpc::ClientContext context;
    v1::RevokeExportRequest request;
    request.set_name(name);
    v1::RevokeExportResponse response;
    EXPECT_TRUE(buffers_->RevokeExport(&context, request, &response).ok());
  }
  void ExpectSame(const Mapped& mapped, const std::string& volume) {
    const Array read = client_->Read(volume);
    EXPECT_EQ(mapped.info().shape, read.shape);
    const auto bytes = mapped.as<uint8_t>();
    ASSERT_EQ(bytes.size(), read.data.size());
    EXPECT_EQ(std::memcmp(bytes.data(), read.data.data(), bytes.size()), 0);
  }

  octavo::testing::TempFolder folder_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::BufferService::Stub> buffers_;
};

TEST_F(MappingTest, AVolumeIsItsBytesWithoutACopy) {
  const auto volumes = Volumes();
  Mapped mapped = client_->Map(volumes[0]);
  ExpectSame(mapped, volumes[0]);
  const MappedInfo& info = mapped.info();
  EXPECT_EQ(info.kind, MemoryKind::kHostMemfd);
  EXPECT_EQ(info.of, volumes[0]);
  EXPECT_EQ(info.digest, client_->GetVolume(volumes[0]).digest);
  EXPECT_EQ(info.scalar, "u8");
  EXPECT_EQ(info.lanes, 1u);
  EXPECT_EQ(info.bytes, 12 * 40 * 128);
  EXPECT_EQ(mapped.device(), -1);
  EXPECT_THROW(mapped.as<float>(), std::logic_error);
  auto exports = Exports();
  ASSERT_EQ(exports.size(), 1u);
  EXPECT_EQ(exports[0].name(), info.name);
  EXPECT_EQ(exports[0].pid(), ::getpid());
  EXPECT_EQ(Thrown([&] { client_->DiscardVolume(volumes[0]); }).reason, "EXPORTED");
  mapped.Check();
  Mapped moved = std::move(mapped);
  moved.Release();
  moved.Release();  // twice does no harm
  EXPECT_EQ(Thrown([&] { moved.Check(); }).reason, "RELEASED");
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
  client_->DiscardVolume(volumes[0]);
}

TEST_F(MappingTest, ALaterVolumeInAMappedSlotIsOneMessage) {
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
  EXPECT_EQ(OpenDescriptors(), descriptors);  // none is kept, here or there
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
  client_->DiscardVolume(volumes[0]);
  client_->DiscardVolume(volumes[1]);
  // The slots of the ended scan serve the next one: other bytes in the memory that is mapped.
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
  const Mapped anew = client_->Map(later[0]);  // a descriptor again
  ExpectSame(anew, later[0]);
}

TEST_F(MappingTest, Revocation) {
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
  const std::vector<uint8_t> before(mapped.as<uint8_t>().begin(), mapped.as<uint8_t>().end());
  ASSERT_TRUE(Until([&] {
    const auto exports = Exports();
    return exports.size() == 1 && exports[0].overdue();
  }));
  const Error refused = Thrown([&] { client_->Map(volumes[1]); });  // over the socket, with the connection that was there
  EXPECT_EQ(refused.reason, "EXPORT_REFUSED");
  EXPECT_EQ(refused.code, Code::kPermissionDenied);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), mapped.as<uint8_t>().begin()));
  mapped.Release();
  ASSERT_TRUE(Until([&] { return Exports().empty(); }));
  ExpectSame(client_->Map(volumes[1]), volumes[1]);
}

TEST_F(MappingTest, BuffersNeedAnExclusiveLease) {
  v1::CreateBufferRequest create;
  create.mutable_type()->set_scalar(v1::SCALAR_F32);
  create.mutable_type()->set_lanes(2);
  create.add_shape(6);
  create.add_shape(5);
  v1::Buffer buffer;
  {
    grpc::ClientContext context;
    const auto status = buffers_->CreateBuffer(&context, create, &buffer);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(Thrown([&] { client_->Map(buffer.name()); }).reason, "EXPORT_LEASE");
  const auto sessions = v1::SessionService::NewStub(channel_);
  v1::AcquireLeaseRequest ask;
  ask.set_resource(buffer.name());
  ask.set_mode(v1::LEASE_EXCLUSIVE);
  ask.set_seconds(60);
  v1::LeaseGrant lease;
  {
    grpc::ClientContext context;
    const auto status = sessions->AcquireLease(&context, ask, &lease);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const Mapped mapped = client_->Map(buffer.name(), {.lease_token = lease.token(), .lease_fence = lease.fence()});
  EXPECT_EQ(mapped.info().of, buffer.name());
  EXPECT_EQ(mapped.info().scalar, "f32");
  EXPECT_EQ(mapped.info().lanes, 2u);
  EXPECT_THAT(mapped.info().shape, ElementsAre(6, 5));
  EXPECT_THAT(mapped.as<float>(), ::testing::Each(0.0f));
  EXPECT_EQ(mapped.as<float>().size(), 60u);
  EXPECT_EQ(Thrown([&] { client_->Map(buffer.name(), {.replica = 7, .lease_token = lease.token()}); }).reason, "BAD_REPLICA");
}

TEST_F(MappingTest, ErrorsOfTheServerAreTyped) {
  const auto volumes = Volumes();
  const Error none = Thrown([&] { client_->Map("volumes/none"); });
  EXPECT_EQ(none.code, Code::kNotFound);
  EXPECT_EQ(none.reason, "NO_VOLUME");
  const Error kind = Thrown([&] { client_->Map(volumes[0], {.accept = {MemoryKind::kCudaVmm}}); });
  EXPECT_EQ(kind.code, Code::kUnimplemented);
  EXPECT_EQ(kind.reason, "EXPORT_KIND");
  const Mapped mapped = client_->Map(volumes[0], {.accept = {MemoryKind::kHostMemfd}});
  const Error taken = Thrown([&] { client_->Map("volumes/none"); });  // by the socket now
  EXPECT_EQ(taken.code, Code::kNotFound);
  EXPECT_EQ(taken.reason, "NO_VOLUME");
  EXPECT_EQ(taken.field, "name");
}

TEST_F(MappingTest, WhatIsMappedOutlivesClientAndServer) {
  const auto volumes = Volumes();
  std::unique_ptr<Mapped> mapped;
  {
    Client other(client_->address());
    mapped = std::make_unique<Mapped>(other.Map(volumes[0]));
  }
  mapped->Check();
  const std::vector<uint8_t> before(mapped->as<uint8_t>().begin(), mapped->as<uint8_t>().end());
  const Mapped second = client_->Map(volumes[0]);
  Stop();
  const Error gone = Thrown([&] { mapped->Check(); });
  EXPECT_EQ(gone.code, Code::kUnavailable);
  EXPECT_EQ(gone.reason, "SERVER_GONE");
  EXPECT_TRUE(std::equal(before.begin(), before.end(), mapped->as<uint8_t>().begin()));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), second.as<uint8_t>().begin()));
  EXPECT_EQ(Thrown([&] { client_->Map(volumes[0]); }).code, Code::kUnavailable);
  mapped->Release();
}

TEST_F(MappingTest, FromManyThreadsAtOnce) {
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
        right += std::memcmp(mapped.data(), truth[i].data.data(), truth[i].data.size()) == 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right, 100);
  EXPECT_TRUE(Until([&] { return Exports().empty(); }));
}

// -- memory of a GPU

constexpr int64_t kMappedBytes = 2 << 20;

/// Hands over a memory file as if it were a device's memory.
class FakeDeviceGrant final : public handoff::Grant {
 public:
  FakeDeviceGrant(int fd, std::string uuid) : fd_(fd), uuid_(std::move(uuid)) {}
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer&, const nlohmann::json& request, std::shared_ptr<handoff::Link>) override {
    return AnswerTo(request);
  }
  absl::StatusOr<handoff::Answer> Message(const nlohmann::json& request) override {
    if (request.contains("release")) {
      ++released;
      return handoff::Answer{.message = {{"released", request["release"]}}, .fds = {}, .keep = nullptr};
    }
    return AnswerTo(request);
  }
  void Ended(handoff::GrantEnd) override {}
  std::atomic<int> released{0}, sent{0};

 private:
  handoff::Answer AnswerTo(const nlohmann::json& request) {
    const bool have = request.contains("have") && !request["have"].empty();
    sent += !have;
    return {.message = {{"export", "exports/1"},
                        {"of", "volumes/1"},
                        {"memory", "00000000000000ab"},
                        {"generation", 3},
                        {"mapped_bytes", kMappedBytes},
                        {"byte_size", 24},
                        {"byte_offset", 0},
                        {"kind", "CUDA_VMM"},
                        {"device_uuid", uuid_},
                        {"scalar", "u16"},
                        {"lanes", 1},
                        {"shape", {3, 4}},
                        {"version", 1},
                        {"digest", ""}},
            .fds = have ? std::vector<int>{} : std::vector<int>{fd_},
            .keep = nullptr};
  }
  const int fd_;
  const std::string uuid_;
};

class DeviceMappingTest : public ::testing::Test {
 protected:
  DeviceMappingTest() {
    EXPECT_EQ(::ftruncate(file_.get(), kMappedBytes), 0);
    EXPECT_EQ(::pwrite(file_.get(), "bytes of the device", 19, 0), 19);
    auto socket = handoff::FdSocket::Open({.path = folder_.path() + "/h.sock"}, &clock_);
    EXPECT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
    connection_ = Handoff::Connect(socket_->path(), seconds(20));
  }
  std::shared_ptr<FakeDeviceGrant> Offer(const std::string& uuid) {
    auto grant = std::make_shared<FakeDeviceGrant>(file_.get(), uuid);
    nonce_ = socket_->Issue(grant, ::getuid())->nonce;
    return grant;
  }
  octavo::testing::TempFolder folder_;
  SystemClock clock_;
  Descriptor file_{::memfd_create("device", MFD_CLOEXEC)};
  std::unique_ptr<handoff::FdSocket> socket_;
  std::shared_ptr<Handoff> connection_;
  std::string nonce_;
  const std::string uuid_ = "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";  // ordinal 1
};

TEST_F(DeviceMappingTest, TheDriversCallsInTheirOrder) {
  const auto grant = Offer(uuid_);
  {
    Mapped mapped = connection_->Present(nonce_);
    EXPECT_EQ(mapped.info().kind, MemoryKind::kCudaVmm);
    EXPECT_EQ(mapped.device(), 1);  // by its UUID
    EXPECT_EQ(std::memcmp(mapped.data(), "bytes of the device", 19), 0);
    EXPECT_THROW(mapped.as<uint16_t>(), std::logic_error);
    EXPECT_EQ(fake_cuda_mapped(), 1);
    EXPECT_EQ(fake_cuda_open(), 2);  // the mapping and its addresses: no handle is left, no context is current
    const int synchronized = fake_cuda_synchronized();
    mapped.Release();
    EXPECT_EQ(fake_cuda_synchronized(), synchronized + 1);  // what was enqueued may still read it
  }
  {
    const Mapped again = connection_->Take("volumes/1");  // mapped already
    EXPECT_EQ(grant->sent, 1);
    EXPECT_EQ(fake_cuda_mapped(), 1);
  }
  EXPECT_TRUE(Until([&] { return grant->released == 2; }));
  connection_->Forget();
  EXPECT_EQ(fake_cuda_open(), 0);
}

TEST_F(DeviceMappingTest, WhatTheDriverRefusesLeavesNothing) {
  auto grant = Offer(uuid_);
  fake_cuda_fail_access(1);
  const Error refused = Thrown([&] { connection_->Present(nonce_); });
  EXPECT_EQ(refused.reason, "CUDA");
  EXPECT_THAT(refused.what(), HasSubstr("cuMemSetAccess: what the driver says (1)"));
  EXPECT_EQ(fake_cuda_open(), 0);
  EXPECT_EQ(connection_->kept(), 0u);
  EXPECT_TRUE(Until([&] { return grant->released == 1; }));  // the server has it back
  const size_t descriptors = OpenDescriptors();              // the server has taken the connection by now
  grant = Offer("GPU-00000000-0000-0000-0000-000000000000");
  const Error hidden = Thrown([&] { connection_->Present(nonce_); });
  EXPECT_EQ(hidden.reason, "CUDA");
  EXPECT_THAT(hidden.what(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(Until([&] { return grant->released == 1; }));
  EXPECT_EQ(OpenDescriptors(), descriptors);
  grant = Offer(uuid_);
  EXPECT_EQ(connection_->Present(nonce_).device(), 1);
  connection_->Forget();
  EXPECT_EQ(fake_cuda_open(), 0);
}

}  // namespace
}  // namespace octavo::client
