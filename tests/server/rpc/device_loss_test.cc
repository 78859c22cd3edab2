// A device is lost under a running server. The server marks it in ListDevices and in the health
// service, its scans end with a typed error, scans of other devices continue, and new scans are
// placed elsewhere or refused.

#include <filesystem>
#include <future>
#include <thread>
#include <utility>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "octavo/v1/scan.grpc.pb.h"
#include "octavo/v1/system.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "gpu/backend/open_devices.h"
#include "gpu/device/device.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_server.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

class DeviceLossTest : public ::testing::Test {
 protected:
  explicit DeviceLossTest(bool host_for_jobs = false) : host_for_jobs_(host_for_jobs) {}
  void SetUp() override {
    char directory[] = "/tmp/octavo-device-loss-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(
        store_, storage::CommitStore::Open(directory_ + "/state", {directory_ + "/data"}, &report));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices("host", 2, host_for_jobs_));
    for (const auto& device : opened.devices) devices_.push_back(device.get());
    engine::EngineConfig config;
    config.memory_bytes = 64 << 20;
    config.host_for_jobs = host_for_jobs_;
    config.host_for_jobs_bytes = 64 << 20;
    config.frame_pool_bytes = 16 << 20;
    config.server_id = "test0000";
    config.software = "octavo test";
    ASSERT_OK_AND_ASSIGN(engine_,
                         engine::Engine::Create(config, std::move(opened.devices), store_.get()));
    ASSERT_OK_AND_ASSIGN(server_, RpcServer::Start({.tcp = {"127.0.0.1:0"}}, engine_.get(), {}));
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    scans_ = v1::ScanService::NewStub(channel_);
    volumes_ = v1::VolumeService::NewStub(channel_);
    system_ = v1::SystemService::NewStub(channel_);
  }
  void TearDown() override {
    channel_ = nullptr;
    server_ = nullptr;
    engine_ = nullptr;
    store_ = nullptr;
    std::filesystem::remove_all(directory_);
  }

  grpc::Status Submit(const std::string& device, uint32_t volumes, v1::Scan* scan) {
    v1::SubmitScanRequest request;
    auto* spec = request.mutable_spec();
    spec->mutable_simulated()->set_seed(3);
    spec->mutable_simulated()->set_as_fast_as_possible(volumes > 0);
    spec->mutable_acquisition()->set_samples_per_record(64);
    spec->mutable_acquisition()->set_record_rate_hz(20000);
    spec->mutable_pattern()->mutable_raster()->set_ascans_per_bscan(32);
    spec->mutable_pattern()->mutable_raster()->set_bscans_per_volume(8);
    spec->mutable_pattern()->mutable_raster()->set_volumes(volumes);
    spec->set_device(device);
    grpc::ClientContext context;
    v1::SubmitScanResponse answer;
    const grpc::Status status = scans_->SubmitScan(&context, request, &answer);
    *scan = answer.scan();
    return status;
  }
  v1::Scan WaitForTheEnd(const std::string& name) {
    grpc::ClientContext context;
    v1::WatchScanRequest request;
    request.set_name(name);
    auto stream = scans_->WatchScan(&context, request);
    v1::WatchScanResponse answer;
    while (stream->Read(&answer)) {
    }
    return answer.scan();
  }
  v1::Scan Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetScanRequest request;
    request.set_name(name);
    v1::GetScanResponse answer;
    EXPECT_TRUE(scans_->GetScan(&context, request, &answer).ok());
    return answer.scan();
  }
  bool Serving(const std::string& service) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice body(service.empty()
                               ? std::string()
                               : std::string("\x0A") + static_cast<char>(service.size()) + service);
    grpc::ByteBuffer request(&body, 1), response;
    grpc::Status status;
    auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
    std::vector<grpc::Slice> slices;
    response.Dump(&slices);
    std::string bytes;
    for (const auto& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return bytes == std::string("\x08\x01", 2);
  }

  const bool host_for_jobs_;
  std::string directory_;
  std::unique_ptr<storage::CommitStore> store_;
  std::vector<Device*> devices_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ScanService::Stub> scans_;
  std::unique_ptr<v1::VolumeService::Stub> volumes_;
  std::unique_ptr<v1::SystemService::Stub> system_;
};

TEST_F(DeviceLossTest, ItsScansEndTheOthersGoOn) {
  v1::Scan held, lost, kept;
  ASSERT_TRUE(Submit("devices/1", 1, &held).ok());
  held = WaitForTheEnd(held.name());
  ASSERT_EQ(held.volumes_size(), 1);
  ASSERT_TRUE(Submit("devices/1", 0, &lost).ok());
  ASSERT_TRUE(Submit("devices/0", 0, &kept).ok());
  std::promise<void> told;
  bool once = false;
  const auto watch =
      engine_->devices().Watch([&](const std::vector<engine::DeviceStatus>& devices) {
        if (!devices[1].healthy && !std::exchange(once, true)) told.set_value();
      });
  EXPECT_TRUE(Serving("devices/1"));
  devices_[1]->InjectFault("fell off the bus");
  const v1::Scan ended = WaitForTheEnd(lost.name());
  EXPECT_EQ(ended.state(), v1::SCAN_STATE_FAILED);
  EXPECT_EQ(ended.reason_code(), v1::REASON_DEVICE_LOST);
  EXPECT_NE(ended.reason().find("devices/1"), std::string::npos) << ended.reason();
  EXPECT_NE(ended.reason().find("fell off the bus"), std::string::npos) << ended.reason();
  told.get_future().wait();
  // The server notifies watchers one after the other.
  for (const auto begun = std::chrono::steady_clock::now();
       Serving("devices/1") &&
       std::chrono::steady_clock::now() - begun < std::chrono::seconds(20);) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(Serving("devices/1"));
  EXPECT_TRUE(Serving("devices/0"));
  EXPECT_TRUE(Serving("")) << "one device is left";
  {
    grpc::ClientContext context;
    v1::ListDevicesResponse answer;
    ASSERT_TRUE(system_->ListDevices(&context, {}, &answer).ok());
    EXPECT_TRUE(answer.devices(0).healthy());
    EXPECT_FALSE(answer.devices(1).healthy());
    EXPECT_NE(answer.devices(1).reason().find("fell off the bus"), std::string::npos);
    EXPECT_EQ(answer.devices(1).running_scans(), 0);
  }
  // Its held volumes are gone, and reads of them return an error that says so.
  {
    grpc::ClientContext context;
    v1::ReadVolumeRequest request;
    request.set_name(held.volumes(0));
    v1::ReadVolumeResponse response;
    auto stream = volumes_->ReadVolume(&context, request);
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS) << status.error_message();
  }
  // The other device's scan still takes records, and new scans are placed there.
  const int64_t before = Get(kept.name()).records();
  while (Get(kept.name()).records() <= before) {
  }
  EXPECT_EQ(Get(kept.name()).state(), v1::SCAN_STATE_RUNNING);
  v1::Scan next;
  ASSERT_TRUE(Submit("", 1, &next).ok());
  EXPECT_EQ(next.device(), "devices/0");
  EXPECT_EQ(WaitForTheEnd(next.name()).state(), v1::SCAN_STATE_DONE);
  const grpc::Status refused = Submit("devices/1", 1, &next);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();

  devices_[0]->InjectFault("and the other one");
  EXPECT_EQ(WaitForTheEnd(kept.name()).reason_code(), v1::REASON_DEVICE_LOST);
  while (Serving("")) {
  }
  EXPECT_EQ(Submit("", 1, &next).error_code(), grpc::StatusCode::UNAVAILABLE);
}

class HostForJobsLossTest : public DeviceLossTest {
 protected:
  HostForJobsLossTest() : DeviceLossTest(true) {}
  /// Waits until the health service says so.
  void AwaitServing(const std::string& service, bool serving) {
    while (Serving(service) != serving) std::this_thread::yield();
  }
};

TEST_F(HostForJobsLossTest, AServerThatHasOnlyTheHostForJobsLeftDoesNotServe) {
  EXPECT_TRUE(Serving("devices/host"));
  devices_[0]->InjectFault("the test");
  AwaitServing("devices/0", false);
  EXPECT_TRUE(Serving("")) << "devices/1 is left";
  devices_[1]->InjectFault("the test");
  AwaitServing("devices/1", false);
  AwaitServing("", false);
  EXPECT_TRUE(Serving("devices/host"));
  v1::Scan scan;
  EXPECT_EQ(Submit("", 1, &scan).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HostForJobsLossTest, TheLossOfTheHostForJobsDisturbsNoScan) {
  v1::Scan scan;
  ASSERT_TRUE(Submit("", 0, &scan).ok());
  devices_[2]->InjectFault("the test");
  AwaitServing("devices/host", false);
  EXPECT_TRUE(Serving(""));
  const int64_t before = Get(scan.name()).records();
  while (Get(scan.name()).records() <= before) std::this_thread::yield();
  EXPECT_EQ(Get(scan.name()).state(), v1::SCAN_STATE_RUNNING);
}

}  // namespace
}  // namespace octavo::rpc
