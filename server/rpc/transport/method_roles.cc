#include "server/rpc/transport/method_roles.h"

#include <map>
#include <string>

namespace octavo::rpc {

// What only shows is for viewers, a picture that the server has to compute included. What changes
// something, what occupies devices or memory (plans, exports, measurements) and what keeps others
// from doing so (holds, leases, sessions, whose clients own what they make) is for operators. No
// method needs an admin yet: what admins may do beyond operators is a matter of the object, not of
// the method.
//
// What waits in the server counts for the quota of its caller (memory/quota.h), so that no caller
// can take all places of a kind.
const std::vector<MethodRole>& MethodRoles() {
  using enum security::Role;
  using enum memory::QuotaKind;
  static const auto& lines = *new std::vector<MethodRole>{
      {"octavo.v1.BufferService.ApplyOp", kOperator},
      {"octavo.v1.BufferService.CommitBuffer", kOperator},
      {"octavo.v1.BufferService.CreateBuffer", kOperator},
      {"octavo.v1.BufferService.DestroyBuffer", kOperator},
      {"octavo.v1.BufferService.GetBuffer", kViewer},
      {"octavo.v1.BufferService.ListBuffers", kViewer},
      {"octavo.v1.BufferService.ReadBuffer", kViewer},
      {"octavo.v1.BufferService.SyncReplicas", kOperator},
      {"octavo.v1.BufferService.UpdateBuffer", kOperator},
      {"octavo.v1.BufferService.WaitBuffer", kViewer, kWatches},
      {"octavo.v1.BufferService.WatchBuffers", kViewer, kWatches},
      {"octavo.v1.BufferService.WriteBuffer", kOperator},
      {"octavo.v1.ExportService.Export", kOperator},
      {"octavo.v1.ExportService.ListExports", kViewer},
      {"octavo.v1.ExportService.RevokeExport", kOperator},
      {"octavo.v1.IngestService.ImportBuffer", kOperator},
      {"octavo.v1.IngestService.ImportVolume", kOperator, kSubmits},
      {"octavo.v1.IngestService.ListCameras", kViewer},
      {"octavo.v1.IngestService.OpenDeposit", kOperator},
      {"octavo.v1.IngestService.OpenRing", kOperator},
      {"octavo.v1.IngestService.Push", kOperator},
      {"octavo.v1.IngestService.PushProjections", kOperator},
      {"octavo.v1.JobService.CancelJob", kOperator},
      {"octavo.v1.JobService.GetJob", kViewer},
      {"octavo.v1.JobService.ListJobs", kViewer},
      {"octavo.v1.JobService.PlanJob", kOperator, kPlans},
      {"octavo.v1.JobService.SubmitJob", kOperator, kSubmits},
      {"octavo.v1.JobService.WatchJob", kViewer, kWatches},
      {"octavo.v1.MosaicService.FindZOverlap", kOperator, kMosaics},
      {"octavo.v1.MosaicService.RegisterTiles", kOperator, kMosaics},
      {"octavo.v1.MosaicService.ResampleTiles", kOperator, kMosaics},
      {"octavo.v1.MosaicService.StackSections", kOperator, kMosaics},
      {"octavo.v1.MosaicService.StitchTiles", kOperator, kMosaics},
      {"octavo.v1.OperationService.CancelOperation", kOperator},
      {"octavo.v1.OperationService.GetOperation", kViewer},
      {"octavo.v1.OperationService.ListOperations", kViewer},
      {"octavo.v1.OperationService.WaitOperation", kViewer, kWatches},
      {"octavo.v1.OperationService.WatchOperation", kViewer, kWatches},
      {"octavo.v1.ScanService.CancelScan", kOperator},
      {"octavo.v1.ScanService.GetScan", kViewer},
      {"octavo.v1.ScanService.ListScans", kViewer},
      {"octavo.v1.ScanService.MarkScan", kOperator},
      {"octavo.v1.ScanService.PlanScan", kOperator, kPlans},
      {"octavo.v1.ScanService.PlanWaveform", kOperator, kPlans},
      {"octavo.v1.ScanService.PlotWaveform", kOperator, kPlans},
      {"octavo.v1.ScanService.StopScan", kOperator},
      {"octavo.v1.ScanService.SubmitScan", kOperator, kSubmits},
      {"octavo.v1.ScanService.UpdateScan", kOperator, kSubmits},
      {"octavo.v1.ScanService.WatchScan", kViewer, kWatches},
      {"octavo.v1.SessionService.AcquireLease", kOperator, kWatches},
      {"octavo.v1.SessionService.CloseSession", kOperator},
      {"octavo.v1.SessionService.KeepAlive", kOperator},
      {"octavo.v1.SessionService.ListLeases", kViewer},
      {"octavo.v1.SessionService.ListSessions", kViewer},
      {"octavo.v1.SessionService.OpenSession", kOperator},
      {"octavo.v1.SessionService.ReleaseLease", kOperator},
      {"octavo.v1.SessionService.RenewLease", kOperator},
      {"octavo.v1.StreamService.Subscribe", kViewer, kWatches},
      {"octavo.v1.SystemService.GetInfo", kViewer},
      {"octavo.v1.SystemService.GetMemory", kViewer},
      {"octavo.v1.SystemService.ListDevices", kViewer},
      {"octavo.v1.SystemService.Measure", kOperator},
      {"octavo.v1.SystemService.ProbeStorage", kOperator},
      {"octavo.v1.VolumeService.CommitVolume", kOperator},
      {"octavo.v1.VolumeService.DeriveVolume", kOperator},
      {"octavo.v1.VolumeService.DiscardVolume", kOperator},
      {"octavo.v1.VolumeService.GetVolume", kViewer},
      {"octavo.v1.VolumeService.HoldVolume", kOperator},
      {"octavo.v1.VolumeService.ListVolumes", kViewer},
      {"octavo.v1.VolumeService.ReadVolume", kViewer},
      {"octavo.v1.VolumeService.ReleaseVolume", kOperator},
      {"octavo.v1.VolumeService.RenderVolume", kViewer, kRenderings},
      {"octavo.v1.VolumeService.RestoreVolume", kOperator},
      {"octavo.v1.VolumeService.SpillVolume", kOperator},
      {"octavo.v1.VolumeService.WaitVolume", kViewer, kWatches},
      {"octavo.v1.VolumeService.WatchVolumes", kViewer, kWatches},
  };
  return lines;
}

const MethodRole* RoleFor(const google::protobuf::Descriptor* request) {
  using Table = std::map<const google::protobuf::Descriptor*, const MethodRole*>;
  static const auto& table = *[] {
    auto* by_request = new Table;
    for (const MethodRole& line : MethodRoles()) {
      const auto* method = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
          std::string(line.method));
      if (method != nullptr) by_request->emplace(method->input_type(), &line);
    }
    return by_request;
  }();
  const auto it = table.find(request);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace octavo::rpc
