// DiscardVolume and ReleaseVolume look for a volume's file, to know which thread may answer. They
// do so for nobody who may not make the call.

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "octavo/v1/volume.grpc.pb.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "server/engine/engine.h"
#include "server/rpc/rpc_server.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::rpc {
namespace {

class RemovalTest : public ::testing::Test {
 protected:
  void TearDown() override {
    ArmFailpoint("");
    server_ = nullptr;
    engine_ = nullptr;
    store_ = nullptr;
  }
  void Serve(security::Role role) {
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(
        store_, storage::CommitStore::Open(folder_ / "state", {folder_ / "data"}, &report));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices("host"));
    engine::EngineConfig config;
    config.memory_bytes = 64 << 20;
    config.frame_pool_bytes = 16 << 20;
    config.server_id = "test0000";
    config.software = "octavo test";
    ASSERT_OK_AND_ASSIGN(engine_,
                         engine::Engine::Create(config, std::move(opened.devices), store_.get()));
    ASSERT_OK_AND_ASSIGN(
        server_, RpcServer::Start({.tcp = {"127.0.0.1:0"}, .trust = {.loopback_role = role}},
                                  engine_.get(), {}));
    stub_ = v1::VolumeService::NewStub(
        grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  }
  grpc::StatusCode Discard(const std::string& name) {
    grpc::ClientContext context;
    v1::DiscardVolumeRequest request;
    v1::DiscardVolumeResponse response;
    request.set_name(name);
    return stub_->DiscardVolume(&context, request, &response).error_code();
  }
  grpc::StatusCode Release(const std::string& name) {
    grpc::ClientContext context;
    v1::ReleaseVolumeRequest request;
    v1::ReleaseVolumeResponse response;
    request.set_name(name);
    return stub_->ReleaseVolume(&context, request, &response).error_code();
  }
  /// How often the calls looked for a file.
  size_t Looks() {
    size_t looks = 0;
    for (const char* const point : {"DiscardVolumeRequest.file", "ReleaseVolumeRequest.file"}) {
      ArmFailpoint(std::string(point) + ":list");
      (void)(point[0] == 'D' ? Discard("volumes/none") : Release("volumes/none"));
      looks += PassedFailpoints().size();
    }
    ArmFailpoint("");
    return looks;
  }

  const testing::TempFolder folder_;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::VolumeService::Stub> stub_;
};

TEST_F(RemovalTest, WhoMayNotCallIsLookedUpNothing) {
  Serve(security::Role::kViewer);
  EXPECT_EQ(Discard("volumes/none"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Release("volumes/none"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Looks(), 0u);
}

TEST_F(RemovalTest, ARequestBeyondItsBoundsIsLookedUpNothing) {
  Serve(security::Role::kOperator);
  EXPECT_EQ(Looks(), 2u);
  ArmFailpoint("DiscardVolumeRequest.file:list");
  EXPECT_EQ(Discard(std::string(1 << 16, 'v')), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(PassedFailpoints().empty());
}

}  // namespace
}  // namespace octavo::rpc
