#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/impl/codegen/service_type.h"

#include "gpu/backend/open_devices.h"
#include "gpu/device/device.h"
#include "server/base/worker_pool.h"
#include "server/engine/engine.h"
#include "server/model/stop_forecast.h"
#include "server/security/role.h"
#include "server/security/tls_store.h"

namespace octavo::rpc {

/// Additional facts for SystemService.GetInfo.
struct ServerInfo {
  std::string version, server_id, build;
  std::vector<BackendReport> backends;
  std::vector<std::string> recovered;  // findings of the recovery at start
  std::vector<std::string> replay_roots;
  TimePoint started;
  std::function<std::vector<std::string>()> listening;
  // addresses that other hosts can reach without TLS, or without a login
  std::vector<std::string> open_addresses;
  // set by RpcServer: whom it believes (TrustConfig)
  security::Role loopback_role = security::Role::kNone;
  security::Role insecure_role = security::Role::kNone;  // as it takes effect
  bool takes_tokens = false;
  const security::TlsStore* tls = nullptr;  // null = TCP without TLS
  bool certificate_required = false;        // of clients, where tls->asks_clients()
  security::Role certificate_role = security::Role::kNone;
  // What is wrong now, as far as it concerns the caller, a line each; empty = not known.
  std::function<std::vector<std::string>(const security::Principal&)> conditions;
  std::function<model::StopForecast()> stop;  // what a stop would have to write; empty = not known
};

/// Threads for calls that take too long for gRPC's few threads: each kind has its own, so that no
/// kind waits for another.
struct SlowWork {
  base::WorkerPool cameras{"oct-camera", 1};  // a camera may take seconds to answer
  base::WorkerPool plans{"oct-plan", 1,
                         5};  // PlanScan, PlanWaveform, PlotWaveform: patterns of many records
  base::WorkerPool submits{"oct-submit", 2};  // SubmitScan, UpdateScan: the same, and memory
  // SubmitScan, StopScan and CancelScan of scans that go on after a restart: they wait for the disk
  base::WorkerPool resume_io{"oct-resume-io", 2};
  base::WorkerPool jobs{"oct-job-plan",
                        4};  // SubmitJob, PlanJob, ImportVolume: files on storage that may hang
  // Pictures of subscribers: whoever wants many, or such as take long, holds up no subscriber of
  // raw frames, and large ones hold up no small ones. The second one hands work to the first.
  base::WorkerPool large_pictures{"oct-picture-big", 1, 15};
  base::WorkerPool pictures{"oct-picture", 2, 10};
  // MosaicService: calls wait for a device
  base::WorkerPool mosaics{"oct-mosaic", 2, 5};
  base::WorkerPool renders{"oct-render", 2, 5};  // RenderVolume: reads volumes, makes pictures
  // DiscardVolume, ReleaseVolume of volumes that have a file: they wait for the disk of the spill
  // directory
  base::WorkerPool removals{"oct-removal", 2};
  base::WorkerPool grants{"oct-grant", 1};  // CreateGrant, RevokeGrant: write the file of grants
};
/// Calls of one kind that may wait or run.
constexpr int kMostPlans = 16, kMostSubmits = 64, kMostRenders = 32, kMostMosaics = 16,
              kMostGrants = 64, kMostRemovals = 1024,
              kMostRevocations = 1024;  // so many that grants do not keep any from being taken back

/// The watches of volumes and buffers (transport/open_watches.h) end when the server stops.
class OpenWatches;

std::unique_ptr<grpc::Service> MakeScanService(engine::Engine* engine, SlowWork* slow);
/// `copiers` copy pushed projections to their places.
std::unique_ptr<grpc::Service> MakeIngestService(engine::Engine* engine, SlowWork* slow,
                                                 base::WorkerPool* copiers);
/// `workers` tell a new watch of the volumes that there are. `picture_bytes`: host memory of the
/// pictures that RenderVolume makes and sends.
std::unique_ptr<grpc::Service> MakeVolumeService(engine::Engine* engine, base::WorkerPool* workers,
                                                 SlowWork* slow, OpenWatches* watches,
                                                 int64_t picture_bytes);
std::unique_ptr<grpc::Service> MakeJobService(engine::Engine* engine, SlowWork* slow);
/// Operations that the verbs of other services begin.
std::unique_ptr<grpc::Service> MakeOperationService(engine::Engine* engine);
/// `workers` read, write and change buffers, which may have to wait for memory or a device.
std::unique_ptr<grpc::Service> MakeBufferService(engine::Engine* engine, base::WorkerPool* workers,
                                                 OpenWatches* watches);
/// `workers` as for buffers: an export may wait for memory to be made shareable.
std::unique_ptr<grpc::Service> MakeExportService(engine::Engine* engine, base::WorkerPool* workers);
/// `workers` wait for devices.
std::unique_ptr<grpc::Service> MakeMosaicService(engine::Engine* engine, base::WorkerPool* workers);
/// `workers` continue streams, so that gRPC's threads never wait; pictures are made by slow work.
/// Both serve the grants of OpenFrames, too: the hand-over socket stops before they end.
std::unique_ptr<grpc::Service> MakeStreamService(engine::Engine* engine, base::WorkerPool* workers,
                                                 SlowWork* slow);
/// Sessions and leases.
std::unique_ptr<grpc::Service> MakeSessionService(engine::Engine* engine);
/// Grants.
std::unique_ptr<grpc::Service> MakeAccessService(engine::Engine* engine, SlowWork* slow);
/// `workers` run measurements, which take seconds.
std::unique_ptr<grpc::Service> MakeSystemService(engine::Engine* engine, base::WorkerPool* workers,
                                                 ServerInfo info);

}  // namespace octavo::rpc
