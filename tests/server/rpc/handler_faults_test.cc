// An exception in every handler of every service in turn, at every failpoint that the handler
// passes. The call gets an answer that reports the exception, and the server continues. It releases
// the call's resources (memory, descriptors, leases, places in queues), and the same request
// succeeds when it is sent again.
//
// The test gets the list of methods from the server (reflection): a method without a line in
// Cases() fails the test.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "octavo/v1/access.pb.h"
#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/export.pb.h"
#include "octavo/v1/ingest.pb.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/mosaic.pb.h"
#include "octavo/v1/operation.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/session.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/system.pb.h"
#include "octavo/v1/volume.pb.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/device/exportable_memory.h"
#include "server/buffer/buffer_store.h"
#include "server/engine/engine.h"
#include "server/handoff/fd_socket.h"
#include "server/rpc/rpc_server.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Message;
using std::chrono::steady_clock;

struct Answer {
  grpc::Status status;
  std::vector<std::string> messages;
};

/// A way to call a method so that it succeeds.
struct Case {
  std::function<std::vector<std::string>()>
      requests;   // also creates their objects; one message for unary calls and server streams
  int read = -1;  // number of messages after which the client disconnects; -1 = reads to the end
  std::set<grpc::StatusCode> again =
      {};  // another valid answer to the second call, because the first one was executed
};

class HandlerFaultsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ClientMemory::MakeExportable(true); }
  static void TearDownTestSuite() { ClientMemory::MakeExportable(false); }

  void SetUp() override {
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(
        store_, storage::CommitStore::Open(folder_ / "state", {folder_ / "data"}, &report));
    ASSERT_OK_AND_ASSIGN(
        socket_, handoff::FdSocket::Open({.path = folder_ / "handoff.sock", .group = ""}, &clock_));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices("host"));
    engine::EngineConfig config;
    config.memory_bytes = 256 << 20;
    config.frame_pool_bytes = 64 << 20;
    config.spill_host_bytes = 16 << 20;
    config.slot_cache_bytes = 0;  // slots kept for the next scan would count
    config.camera_interfaces = {"Fake"};
    config.server_id = "test0000";
    config.software = "octavo test";
    config.handoff = socket_.get();
    config.replay_roots = {folder_ / "files"};
    ASSERT_OK_AND_ASSIGN(engine_,
                         engine::Engine::Create(config, std::move(opened.devices), store_.get()));
    engine_->exports().store().Start(socket_.get(), 10);
    ASSERT_OK_AND_ASSIGN(
        server_, RpcServer::Start(
                     {.tcp = {"127.0.0.1:0"}, .trust = {.loopback_role = security::Role::kAdmin}},
                     engine_.get(), {}));
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
  }
  void TearDown() override {
    ArmFailpoint("");
    stub_ = nullptr;
    channel_ = nullptr;
    if (socket_ != nullptr) socket_->Stop();  // its grants use the server's workers
    server_ = nullptr;
    engine_ = nullptr;
    store_ = nullptr;
  }

  // -- calls
  static std::string Bytes(const grpc::ByteBuffer& buffer) {
    std::vector<grpc::Slice> slices;
    (void)buffer.Dump(&slices);
    std::string bytes;
    for (const auto& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return bytes;
  }
  Answer Call(const std::string& method, const std::vector<std::string>& requests, int read = -1) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    grpc::CompletionQueue queue;
    const auto done = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    auto call = stub_->PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    bool open = done();
    for (const std::string& request : requests) {
      const grpc::Slice slice(request);
      if (!open) break;
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      open = done();
    }
    if (open && read < 0) {
      call->WritesDone(nullptr);
      (void)done();
    }
    Answer answer;
    while (read < 0 || std::ssize(answer.messages) < read) {
      grpc::ByteBuffer message;
      call->Read(&message, nullptr);
      if (!done()) break;
      answer.messages.push_back(Bytes(message));
    }
    if (read >= 0 && std::ssize(answer.messages) == read) context.TryCancel();
    call->Finish(&answer.status, nullptr);
    (void)done();
    // The client disconnected after it had its result.
    if (read >= 0 && std::ssize(answer.messages) == read) answer.status = grpc::Status::OK;
    queue.Shutdown();
    return answer;
  }
  template <class Response, class Request>
  Response Ask(const std::string& method, const Request& request) {
    const Answer answer = Call("/octavo.v1." + method, {request.SerializeAsString()});
    EXPECT_TRUE(answer.status.ok()) << method << ": " << answer.status.error_message();
    Response response;
    EXPECT_TRUE(!answer.messages.empty() && response.ParseFromString(answer.messages.back()))
        << method;
    return response;
  }

  /// All our methods that the server offers, from its own list: grpc.reflection's list_services
  /// (field 7), and the names in the answer.
  std::map<std::string, const google::protobuf::MethodDescriptor*> Methods() {
    const Answer answer = Call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                               {std::string("\x3a\x00", 2)});
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    std::map<std::string, const google::protobuf::MethodDescriptor*> methods;
    const std::string& text = answer.messages.empty() ? std::string() : answer.messages[0];
    for (size_t at = text.find("octavo."); at != std::string::npos;
         at = text.find("octavo.", at + 1)) {
      const std::string name = text.substr(at, static_cast<size_t>(text[at - 1]));
      const auto* service =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      if (service == nullptr) {
        ADD_FAILURE() << "a service that this test does not know: " << name;
        continue;
      }
      for (int i = 0; i < service->method_count(); ++i)
        methods["/" + name + "/" + service->method(i)->name()] = service->method(i);
    }
    return methods;
  }

  // -- objects of the calls
  static v1::ScanSpec Spec(uint32_t volumes) {
    v1::ScanSpec spec;
    spec.mutable_simulated()->set_seed(3);
    spec.mutable_simulated()->set_as_fast_as_possible(volumes > 0);
    spec.mutable_acquisition()->set_samples_per_record(64);
    spec.mutable_acquisition()->set_record_rate_hz(20000);
    spec.mutable_pattern()->mutable_raster()->set_ascans_per_bscan(16);
    spec.mutable_pattern()->mutable_raster()->set_bscans_per_volume(8);
    spec.mutable_pattern()->mutable_raster()->set_volumes(volumes);
    if (volumes == 0) spec.mutable_retention()->set_mode(v1::RETENTION_MODE_LIVE);
    return spec;
  }
  std::string Id() { return "request-" + std::to_string(++ids_); }
  std::string Submit(const v1::ScanSpec& spec) {
    v1::SubmitScanRequest request;
    *request.mutable_spec() = spec;
    return Ask<v1::SubmitScanResponse>("ScanService/SubmitScan", request).scan().name();
  }
  template <class F>
  void Until(const F& done) {
    const auto patience = steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
      ASSERT_LT(steady_clock::now(), patience) << "it never comes";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::string HeldVolume() {
    const std::string scan = Submit(Spec(1));
    std::string name;
    Until([&] {
      if (!engine::IsFinal(engine_->scans().Get(scan)->state)) return false;
      for (const auto& volume : engine_->volumes().List({.parent = scan, .in_memory = true}))
        name = volume.name;
      return true;
    });
    return name;
  }
  std::string SpilledVolume() {
    v1::SpillVolumeRequest request;
    request.set_name(HeldVolume());
    request.set_tier(v1::TIER_HOST);
    (void)Ask<v1::SpillVolumeResponse>("VolumeService/SpillVolume", request).volume();
    return request.name();
  }
  v1::CreateBufferRequest NewBuffer() {
    v1::CreateBufferRequest request;
    request.mutable_type()->set_dtype(v1::DTYPE_U8);
    request.add_shape(1024);
    request.set_request_id(Id());
    return request;
  }
  std::string Buffer() {
    return Ask<v1::CreateBufferResponse>("BufferService/CreateBuffer", NewBuffer()).buffer().name();
  }
  std::string BufferOf(const std::string& owner) {
    const auto made = engine_->buffers().Create(
        {.scalar = Scalar::kU8, .shape = {1024}},
        {.client = "", .key = "", .principal = {.name = owner, .proof = security::Proof::kToken}});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->name : "";
  }
  /// Zeros [2, 16, 16], as a slab and as tiles.
  static constexpr int kTestTiles = 2;
  std::string Slab() {
    v1::CreateBufferRequest request = NewBuffer();
    request.mutable_type()->set_dtype(v1::DTYPE_F32);
    request.clear_shape();
    for (const uint64_t extent : {2, 16, 16}) request.add_shape(extent);
    return Ask<v1::CreateBufferResponse>("BufferService/CreateBuffer", request).buffer().name();
  }
  void FillTiles(v1::TileSource* tiles) {
    tiles->set_name(Slab());
    tiles->mutable_stack()->set_depth(1);
    tiles->mutable_spacing_um()->set_y(1);
    tiles->mutable_spacing_um()->set_x(1);
  }
  v1::LeaseGrant Lease(const std::string& resource, v1::LeaseMode mode) {
    v1::AcquireLeaseRequest request;
    request.set_resource(resource);
    request.set_mode(mode);
    request.mutable_ttl()->set_seconds(100);
    return Ask<v1::AcquireLeaseResponse>("SessionService/AcquireLease", request).lease();
  }
  std::string Session() {
    return Ask<v1::OpenSessionResponse>("SessionService/OpenSession", v1::OpenSessionRequest())
        .secret();
  }
  /// The name of a .npy file below the replay root: 2 x 3 x 4 bytes.
  std::string NumbersFile() {
    std::filesystem::create_directories(folder_ / "files");
    std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4), }";
    header.resize(117, ' ');
    std::ofstream(folder_ / "files/numbers.npy", std::ios::binary)
        << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n'
        << std::string(24, 'x');
    return "numbers.npy";
  }
  v1::SubmitJobRequest PushedJob() {
    v1::SubmitJobRequest request;
    request.set_request_id(Id());
    auto* tomography = request.mutable_spec()->mutable_tomography();
    tomography->mutable_push()->set_rows(2);
    tomography->mutable_push()->set_columns(32);
    tomography->mutable_push()->set_frames(16);
    tomography->mutable_push()->set_dtype(v1::DTYPE_U16);
    return request;
  }
  std::string Job() {
    return Ask<v1::SubmitJobResponse>("JobService/SubmitJob", PushedJob()).job().name();
  }

  template <class Request>
  static std::function<std::vector<std::string>()> One(
      std::function<void(Request&)> fill = nullptr) {
    return [fill = std::move(fill)] {
      Request request;
      if (fill) fill(request);
      return std::vector<std::string>{request.SerializeAsString()};
    };
  }
  template <class Request>
  std::function<std::vector<std::string>()> OfScan(uint32_t volumes = 0) {
    return One<Request>([this, volumes](Request& r) { r.set_name(Submit(Spec(volumes))); });
  }
  template <class Request>
  std::function<std::vector<std::string>()> OfVolume() {
    return One<Request>([this](Request& r) { r.set_name(HeldVolume()); });
  }
  template <class Request>
  std::function<std::vector<std::string>()> OfBuffer() {
    return One<Request>([this](Request& r) { r.set_name(Buffer()); });
  }
  template <class Request>
  std::function<std::vector<std::string>()> OfJob() {
    return One<Request>([this](Request& r) { r.set_name(Job()); });
  }

  template <class Request>
  std::function<std::vector<std::string>()> OfOperation() {
    return One<Request>([this](Request& r) {
      v1::SpillVolumeRequest spill;
      spill.set_name(HeldVolume());
      spill.set_tier(v1::TIER_HOST);
      r.set_name(
          Ask<v1::SpillVolumeResponse>("VolumeService/SpillVolume", spill).operation().name());
    });
  }

  std::map<std::string, Case> Cases() {
    using enum grpc::StatusCode;
    std::map<std::string, Case> cases;
    const auto add = [&](const std::string& method, Case one) {
      cases["/octavo.v1." + method] = std::move(one);
    };
    add("ScanService/SubmitScan", {One<v1::SubmitScanRequest>([this](auto& r) {
          *r.mutable_spec() = Spec(0);
          r.set_request_id(Id());
        })});
    add("ScanService/PlanScan",
        {One<v1::PlanScanRequest>([](auto& r) { *r.mutable_spec() = Spec(1); })});
    add("ScanService/PlanWaveform",
        {One<v1::PlanWaveformRequest>([](auto& r) { *r.mutable_spec() = Spec(1); })});
    add("ScanService/PlotWaveform",
        {One<v1::PlotWaveformRequest>([](auto& r) { *r.mutable_spec() = Spec(1); })});
    add("ScanService/GetScan", {OfScan<v1::GetScanRequest>()});
    add("ScanService/ListScans", {One<v1::ListScansRequest>()});
    add("ScanService/WatchScan", {OfScan<v1::WatchScanRequest>(1)});
    add("ScanService/UpdateScan", {One<v1::UpdateScanRequest>([this](auto& r) {
          r.set_name(Submit(Spec(0)));
          r.mutable_update_mask()->add_paths("*");
        })});
    add("ScanService/StopScan", {OfScan<v1::StopScanRequest>()});
    add("ScanService/CancelScan", {OfScan<v1::CancelScanRequest>()});
    add("ScanService/MarkScan", {One<v1::MarkScanRequest>([this](auto& r) {
          r.set_name(Submit(Spec(0)));
          r.set_marker("stimulus");
        })});
    add("VolumeService/GetVolume", {OfVolume<v1::GetVolumeRequest>()});
    add("VolumeService/ListVolumes", {One<v1::ListVolumesRequest>()});
    add("VolumeService/ReadVolume", {OfVolume<v1::ReadVolumeRequest>()});
    add("VolumeService/RenderVolume", {OfVolume<v1::RenderVolumeRequest>()});
    add("VolumeService/HoldVolume", {OfVolume<v1::HoldVolumeRequest>()});
    add("VolumeService/ReleaseVolume", {OfVolume<v1::ReleaseVolumeRequest>()});
    add("VolumeService/CommitVolume", {One<v1::CommitVolumeRequest>([this](auto& r) {
          r.set_name(HeldVolume());
          r.set_request_id(Id());
          r.mutable_options()->set_destination(Id());
          r.mutable_options()->set_format(v1::FORMAT_NPY);
        })});
    add("VolumeService/DiscardVolume",
        {.requests = OfVolume<v1::DiscardVolumeRequest>(), .again = {FAILED_PRECONDITION}});
    add("VolumeService/DeriveVolume", {One<v1::DeriveVolumeRequest>([this](auto& r) {
          r.set_name(HeldVolume());
          r.set_request_id(Id());
          r.add_operations()->mutable_array()->mutable_mip()->set_axis(2);
        })});
    add("VolumeService/WaitVolume", {OfVolume<v1::WaitVolumeRequest>()});
    add("VolumeService/WatchVolumes", {.requests =
                                           [this] {
                                             (void)HeldVolume();
                                             return std::vector<std::string>{""};
                                           },
                                       .read = 1});
    add("VolumeService/SpillVolume", {One<v1::SpillVolumeRequest>([this](auto& r) {
          r.set_name(HeldVolume());
          r.set_tier(v1::TIER_HOST);
        })});
    add("VolumeService/RestoreVolume",
        {One<v1::RestoreVolumeRequest>([this](auto& r) { r.set_name(SpilledVolume()); })});
    add("JobService/SubmitJob",
        {[this] { return std::vector<std::string>{PushedJob().SerializeAsString()}; }});
    add("JobService/PlanJob",
        {One<v1::PlanJobRequest>([this](auto& r) { *r.mutable_spec() = PushedJob().spec(); })});
    add("JobService/GetJob", {OfJob<v1::GetJobRequest>()});
    add("JobService/ListJobs", {One<v1::ListJobsRequest>()});
    add("JobService/WatchJob", {.requests = OfJob<v1::WatchJobRequest>(), .read = 1});
    add("JobService/CancelJob", {OfJob<v1::CancelJobRequest>()});
    add("OperationService/GetOperation", {OfOperation<v1::GetOperationRequest>()});
    add("OperationService/ListOperations", {One<v1::ListOperationsRequest>()});
    add("OperationService/WaitOperation", {OfOperation<v1::WaitOperationRequest>()});
    add("OperationService/CancelOperation", {OfOperation<v1::CancelOperationRequest>()});
    add("OperationService/WatchOperation", {OfOperation<v1::WatchOperationRequest>()});
    add("BufferService/CreateBuffer",
        {[this] { return std::vector<std::string>{NewBuffer().SerializeAsString()}; }});
    add("BufferService/WriteBuffer", {[this] {
          v1::WriteBufferRequest header, data;
          header.mutable_header()->set_name(Buffer());
          header.mutable_header()->mutable_target()->set_all(true);
          header.mutable_header()->set_total_bytes(1024);
          data.set_data(std::string(1024, 'x'));
          return std::vector<std::string>{header.SerializeAsString(), data.SerializeAsString()};
        }});
    add("BufferService/ReadBuffer", {OfBuffer<v1::ReadBufferRequest>()});
    add("BufferService/GetBuffer", {OfBuffer<v1::GetBufferRequest>()});
    add("BufferService/ListBuffers", {One<v1::ListBuffersRequest>()});
    add("BufferService/WatchBuffers", {.requests =
                                           [this] {
                                             (void)Buffer();
                                             return std::vector<std::string>{""};
                                           },
                                       .read = 1});
    add("BufferService/UpdateBuffer", {One<v1::UpdateBufferRequest>([this](auto& r) {
          r.set_name(Buffer());
          r.mutable_update_mask()->add_paths("*");
        })});
    add("BufferService/DestroyBuffer",
        {.requests = OfBuffer<v1::DestroyBufferRequest>(), .again = {NOT_FOUND}});
    add("BufferService/SyncReplicas", {OfBuffer<v1::SyncReplicasRequest>()});
    add("BufferService/ApplyOp", {One<v1::ApplyOpRequest>([this](auto& r) {
          r.set_input(Buffer());
          r.set_request_id(Id());
          r.add_operations()->mutable_mip()->set_axis(0);
        })});
    add("BufferService/CommitBuffer", {One<v1::CommitBufferRequest>([this](auto& r) {
          r.set_name(Buffer());
          r.set_request_id(Id());
          r.add_axes("z");
          r.mutable_options()->set_destination(Id());
          r.mutable_options()->set_format(v1::FORMAT_NPY);
        })});
    add("BufferService/WaitBuffer", {OfBuffer<v1::WaitBufferRequest>()});
    add("MosaicService/RegisterTiles", {One<v1::RegisterTilesRequest>([this](auto& r) {
          FillTiles(r.mutable_tiles());
          for (int i = 0; i < kTestTiles; ++i) r.add_stage_um()->set_x(i);
        })});
    add("MosaicService/StitchTiles", {One<v1::StitchTilesRequest>([this](auto& r) {
          FillTiles(r.mutable_tiles());
          for (int i = 0; i < kTestTiles; ++i) r.add_position_um()->set_x(i);
          r.set_request_id(Id());
        })});
    add("MosaicService/FindZOverlap", {One<v1::FindZOverlapRequest>([this](auto& r) {
          r.set_fixed(Slab());
          r.set_moving(r.fixed());
          r.set_slicing_interval_um(1);
          r.set_search_range_um(1);
          r.set_spacing_z_um(1);
        })});
    add("MosaicService/StackSections", {One<v1::StackSectionsRequest>([this](auto& r) {
          r.add_sections()->set_name(Slab());
          r.add_sections()->set_name(r.sections(0).name());
          for (const int64_t planes : {1}) r.add_overlap(planes);
          r.mutable_spacing_um()->set_z(1);
          r.mutable_spacing_um()->set_y(1);
          r.mutable_spacing_um()->set_x(1);
          r.set_request_id(Id());
        })});
    add("MosaicService/ResampleTiles", {One<v1::ResampleTilesRequest>([this](auto& r) {
          FillTiles(r.mutable_tiles());
          r.mutable_target_um()->set_y(2);
          r.set_request_id(Id());
        })});
    add("ExportService/Export", {OfVolume<v1::ExportRequest>()});
    add("ExportService/RevokeExport",
        {.requests = One<v1::RevokeExportRequest>([this](auto& r) {
           v1::ExportRequest request;
           request.set_name(HeldVolume());
           r.set_name(Ask<v1::ExportResponse>("ExportService/Export", request).name());
         }),
         .again = {NOT_FOUND}});
    add("ExportService/ListExports", {One<v1::ListExportsRequest>()});
    add("StreamService/Subscribe",
        {.requests = One<v1::SubscribeRequest>([this](auto& r) { r.set_parent(Submit(Spec(0))); }),
         .read = 1});
    add("IngestService/Push", {.requests = One<v1::PushRequest>([this](auto& r) {
                                 v1::ScanSpec spec = Spec(1);
                                 spec.mutable_push();
                                 r.set_scan(Submit(spec));
                               }),
                               .read = 1});
    add("IngestService/PushProjections",
        {.requests = One<v1::PushProjectionsRequest>([this](auto& r) { r.set_job(Job()); }),
         .read = 1});
    add("StreamService/OpenFrames", {One<v1::OpenFramesRequest>([](auto& r) {
          r.mutable_subscription()->add_products(v1::PRODUCT_MIP);
        })});
    add("IngestService/OpenRing", {One<v1::OpenRingRequest>([this](auto& r) {
          v1::ScanSpec spec = Spec(1);
          spec.mutable_ring();
          r.set_scan(Submit(spec));
        })});
    add("IngestService/ImportBuffer", {One<v1::ImportBufferRequest>([this](auto& r) {
          r.mutable_type()->set_dtype(v1::DTYPE_U8);
          r.add_shape(4096);
          r.set_request_id(Id());
        })});
    add("IngestService/ListCameras", {One<v1::ListCamerasRequest>()});
    add("IngestService/OpenDeposit",
        {One<v1::OpenDepositRequest>([](auto& r) { r.set_name("a.npy"); })});
    add("IngestService/ImportVolume", {One<v1::ImportVolumeRequest>([this](auto& r) {
          r.set_request_id(Id());
          r.mutable_volume_import()->set_path(NumbersFile());
          r.mutable_volume_import()->set_allow_unknown_spacing(true);
          r.mutable_volume_import()->add_axes("z");
          r.mutable_volume_import()->add_axes("y");
          r.mutable_volume_import()->add_axes("x");
        })});
    add("SessionService/OpenSession", {One<v1::OpenSessionRequest>()});
    add("SessionService/KeepAlive",
        {One<v1::KeepAliveRequest>([this](auto& r) { r.set_secret(Session()); })});
    add("SessionService/CloseSession",
        {One<v1::CloseSessionRequest>([this](auto& r) { r.set_secret(Session()); })});
    add("SessionService/ListSessions", {One<v1::ListSessionsRequest>()});
    add("SessionService/AcquireLease", {One<v1::AcquireLeaseRequest>([this](auto& r) {
          r.set_resource(HeldVolume());
          r.mutable_ttl()->set_seconds(100);
        })});
    add("SessionService/RenewLease", {One<v1::RenewLeaseRequest>([this](auto& r) {
          r.set_token(Lease(HeldVolume(), v1::LEASE_MODE_SHARED).token());
          r.mutable_ttl()->set_seconds(50);
        })});
    add("SessionService/ReleaseLease",
        {.requests = One<v1::ReleaseLeaseRequest>(
             [this](auto& r) { r.set_token(Lease(HeldVolume(), v1::LEASE_MODE_SHARED).token()); }),
         .again = {FAILED_PRECONDITION}});
    add("SessionService/ListLeases", {One<v1::ListLeasesRequest>()});
    // Callers of this test have no identity: they are admins, who grant what another one owns.
    add("AccessService/CreateGrant", {One<v1::CreateGrantRequest>([this](auto& r) {
          r.set_object(BufferOf("ada"));
          r.set_grantee("bob");
        })});
    add("AccessService/RevokeGrant", {.requests = One<v1::RevokeGrantRequest>([this](auto& r) {
                                        const auto grant = engine_->grants().book().Put(
                                            {.name = "ada"}, "", "bob", 1'000'000'000'000);
                                        ASSERT_TRUE(grant.ok()) << grant.status();
                                        r.set_name(grant->name);
                                      }),
                                      .again = {NOT_FOUND}});
    add("AccessService/ListGrants", {One<v1::ListGrantsRequest>()});
    add("SystemService/GetInfo", {One<v1::GetInfoRequest>()});
    add("SystemService/ListDevices", {One<v1::ListDevicesRequest>()});
    add("SystemService/Measure", {One<v1::MeasureRequest>([](auto& r) {
          r.set_samples(64);
          r.set_records_per_block(16);
          r.mutable_duration()->set_nanos(10'000'000);
        })});
    add("SystemService/ProbeStorage", {One<v1::ProbeStorageRequest>([this](auto& r) {
          r.set_root(folder_ / "data");
          r.set_bytes(16 << 20);
        })});
    add("SystemService/GetMemory", {One<v1::GetMemoryRequest>()});
    return cases;
  }

  // -- resources in use
  struct Taken {
    int64_t memory = 0, host_tier = 0, leases = 0, exports = 0, buffers = 0, running_jobs = 0,
            held = 0, descriptors = 0;
    bool operator==(const Taken&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Taken& t) {
      return out << "memory " << t.memory << ", host tier " << t.host_tier << ", leases "
                 << t.leases << ", exports " << t.exports << ", buffers " << t.buffers << ", jobs "
                 << t.running_jobs << ", volumes " << t.held << ", descriptors " << t.descriptors;
    }
  };
  Taken Now() {
    Taken taken;
    const engine::MemoryStatus memory = engine_->devices().GetMemory();
    for (const auto& d : memory.devices)
      taken.memory += d.reserved_bytes + d.held_bytes + d.buffer_bytes + d.detached_bytes;
    for (const auto& tier : memory.tiers) taken.host_tier += tier.used_bytes;
    taken.leases = std::ssize(engine_->clients().leases().List());
    taken.exports = std::ssize(engine_->exports().store().List());
    taken.buffers = engine_->buffers().Count().buffers;
    for (const auto& job : engine_->jobs().List())
      taken.running_jobs += !engine::IsFinal(job.state);
    taken.held = std::ssize(engine_->volumes().List({.in_memory = true}));
    taken.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                      std::filesystem::directory_iterator());
    return taken;
  }
  /// Ends all objects that clients know of. Any resource still in use afterwards is a leak.
  void Clear() {
    const model::Caller admin{
        .client = "", .key = "", .principal = {.name = "admin", .role = security::Role::kAdmin}};
    for (const auto& job : engine_->jobs().List())
      (void)engine_->jobs().Cancel(job.name, admin.principal);
    for (const auto& scan : engine_->scans().List()) {
      if (!engine::IsFinal(scan.state)) (void)engine_->scans().Cancel(scan.name, admin.principal);
    }
    Until([&] { return engine_->Idle(); });
    for (const auto& e : engine_->exports().store().List())
      (void)engine_->exports().store().Revoke(e.name, admin.principal);
    for (const auto& lease : engine_->clients().leases().List())
      (void)engine_->clients().leases().Release(lease.token);
    for (const auto& buffer : engine_->buffers().List({}))
      (void)engine_->buffers().Destroy(buffer.name, "", "", admin);
    Until([&] {
      for (const auto& volume : engine_->volumes().List({.in_memory = true}))
        (void)engine_->volumes().Discard(volume.name, true, "", admin.principal);
      return engine_->volumes().List({.in_memory = true}).empty();
    });
  }
  /// The resources in use at rest. The memory of buffers is freed only after the device has passed
  /// its last use.
  Taken Cleared() {
    Clear();
    Until([&] { return Now() == Taken{.descriptors = Now().descriptors}; });
    return Now();
  }
  /// Work before `start` may still have had a descriptor and close it later. Then `start` is
  /// lowered, also for later comparisons.
  void ExpectAllIsBack(Taken* start, const std::string& what) {
    Taken now;
    const auto patience = steady_clock::now() + std::chrono::seconds(10);
    do {
      now = Now();
      start->descriptors = std::min(start->descriptors, now.descriptors);
      if (now == *start) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (steady_clock::now() < patience);
    EXPECT_EQ(now, *start) << what;
  }

  const SystemClock clock_;
  octavo::testing::TempFolder folder_;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<handoff::FdSocket> socket_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  int ids_ = 0;
};

bool IsOfAFault(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::INTERNAL ||
         status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

TEST_F(HandlerFaultsTest, EachHandlerAtEachOfItsPoints) {
  const auto cases = Cases();
  const auto methods = Methods();
  EXPECT_GE(methods.size(), cases.size());
  int faults = 0;
  for (const auto& [method, descriptor] : methods) {
    SCOPED_TRACE(method);
    const auto found = cases.find(method);
    if (found == cases.end()) {
      ADD_FAILURE() << method << " has no line in Cases()";
      continue;
    }
    const Case& one = found->second;
    // Runs a method without faults and records its failpoints.
    const auto requests = one.requests();
    const std::string prefix = descriptor->input_type()->name() + ".";
    ArmFailpoint("*:list");
    const Answer whole = Call(method, requests, one.read);
    // A client that disconnects does not wait for the handler's end.
    const auto ended = [&] {
      const std::vector<std::string> passed = PassedFailpoints();
      return std::find(passed.begin(), passed.end(), prefix + "end") != passed.end();
    };
    if (one.read >= 0) Until(ended);
    std::vector<std::string> points = PassedFailpoints();
    ArmFailpoint("");
    EXPECT_TRUE(whole.status.ok() || method == "/octavo.v1.IngestService/ListCameras")
        << whole.status.error_message();
    Taken start = Cleared();
    EXPECT_NE(std::find(points.begin(), points.end(), prefix + "begin"), points.end())
        << "this handler does not go through the wrapper";
    std::set<std::string> tried;
    for (size_t i = 0; i < points.size(); ++i) {
      if (!tried.insert(points[i]).second) continue;
      for (const char* exception : {"bad_alloc", "system_error", "runtime_error"}) {
        const bool own = points[i].starts_with(prefix);
        const std::string what = method + " at " + points[i] + ", " + exception;
        const auto again = one.requests();
        ArmFailpoint(own ? points[i] + ":throw=" + exception
                         : "*:throw=" + std::string(exception) + ":" + std::to_string(i + 1));
        const Answer failed = Call(method, again, one.read);
        if (own && one.read >= 0) Until([] { return !FailpointArmed(); });
        const bool fired = !FailpointArmed();
        ArmFailpoint("");
        EXPECT_TRUE(fired || !own) << what << ": the point was not passed";
        if (points[i] == prefix + "begin")
          EXPECT_TRUE(IsOfAFault(failed.status)) << what << ": " << failed.status.error_message();
        EXPECT_TRUE(failed.status.ok() || IsOfAFault(failed.status) ||
                    failed.status.error_code() == whole.status.error_code())
            << what << ": " << failed.status.error_code() << " " << failed.status.error_message();
        faults += fired;
        // The same request once more. Work that continues although its answer was lost (a move, a
        // derived volume, an abandoned commit) makes the server answer "ask again".
        Answer retry = Call(method, again, one.read);
        const auto patience = steady_clock::now() + std::chrono::seconds(10);
        while (steady_clock::now() < patience &&
               (retry.status.error_code() == grpc::StatusCode::CANCELLED ||
                retry.status.error_message().find("ask again") != std::string::npos)) {
          retry = Call(method, again, one.read);
        }
        EXPECT_TRUE(
            retry.status.error_code() == whole.status.error_code() ||
            (points[i] != prefix + "begin" && one.again.contains(retry.status.error_code())))
            << what << ", once more: " << retry.status.error_code() << " "
            << retry.status.error_message();
        Clear();
        ExpectAllIsBack(&start, what);
        if (HasFatalFailure()) return;
      }
    }
  }
  RecordProperty("faults", faults);
  std::cout << methods.size() << " methods, " << faults << " faults\n";
}

// No thread can start for a scan; each of its threads fails in turn.
TEST_F(HandlerFaultsTest, AScanWithoutThreads) {
  (void)HeldVolume();
  Taken start = Cleared();
  for (int thread = 1; thread <= 4; ++thread) {
    v1::SubmitScanRequest request;
    *request.mutable_spec() = Spec(1);
    request.set_request_id(Id());
    ArmFailpoint("thread_started:throw=system_error:" + std::to_string(thread));
    const Answer refused = Call("/octavo.v1.ScanService/SubmitScan", {request.SerializeAsString()});
    EXPECT_FALSE(FailpointArmed());
    ArmFailpoint("");
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << refused.status.error_message();
    EXPECT_NE(refused.status.error_message().find("no thread left"), std::string::npos)
        << refused.status.error_message();
    ExpectAllIsBack(&start, "after the refusal");
    const Answer retry = Call("/octavo.v1.ScanService/SubmitScan", {request.SerializeAsString()});
    EXPECT_TRUE(retry.status.ok()) << retry.status.error_message();
    Clear();
    ExpectAllIsBack(&start, "after the scan");
  }
}

}  // namespace
}  // namespace octavo::rpc
