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
// What only asks, and what keeps a session or a lease as it is, changes nothing that a person would
// look for later: the audit log has a line of it only if it was refused (call_audit.h).
//
// What waits in the server counts for the quota of its caller (memory/quota.h), so that no caller
// can take all places of a kind.
const std::vector<MethodRole>& MethodRoles() {
  using enum security::Role;
  using enum Effect;
  using enum memory::QuotaKind;
  static const auto& lines = *new std::vector<MethodRole>{
      {"octavo.v1.AccessService.CreateGrant", kOperator, kChanges},
      {"octavo.v1.AccessService.ListGrants", kViewer, kAsks},
      {"octavo.v1.AccessService.RevokeGrant", kOperator, kChanges},
      {"octavo.v1.BufferService.ApplyOp", kOperator, kChanges},
      {"octavo.v1.BufferService.CommitBuffer", kOperator, kChanges},
      {"octavo.v1.BufferService.CreateBuffer", kOperator, kChanges},
      {"octavo.v1.BufferService.DestroyBuffer", kOperator, kChanges},
      {"octavo.v1.BufferService.GetBuffer", kViewer, kAsks},
      {"octavo.v1.BufferService.ListBuffers", kViewer, kAsks},
      {"octavo.v1.BufferService.ReadBuffer", kViewer, kAsks},
      {"octavo.v1.BufferService.SyncReplicas", kOperator, kChanges},
      {"octavo.v1.BufferService.UpdateBuffer", kOperator, kChanges},
      {"octavo.v1.BufferService.WaitBuffer", kViewer, kAsks, kWatches},
      {"octavo.v1.BufferService.WatchBuffers", kViewer, kAsks, kWatches},
      {"octavo.v1.BufferService.WriteBuffer", kOperator, kChanges, kWatches},
      {"octavo.v1.ExportService.Export", kOperator, kChanges},
      {"octavo.v1.ExportService.ListExports", kViewer, kAsks},
      {"octavo.v1.ExportService.RevokeExport", kOperator, kChanges},
      {"octavo.v1.IngestService.ImportBuffer", kOperator, kChanges},
      {"octavo.v1.IngestService.ImportVolume", kOperator, kChanges, kSubmits},
      {"octavo.v1.IngestService.ListCameras", kViewer, kAsks},
      {"octavo.v1.IngestService.OpenDeposit", kOperator, kChanges},
      {"octavo.v1.IngestService.OpenRing", kOperator, kChanges},
      {"octavo.v1.IngestService.Push", kOperator, kChanges, kWatches},
      {"octavo.v1.IngestService.PushProjections", kOperator, kChanges, kWatches},
      {"octavo.v1.JobService.CancelJob", kOperator, kChanges},
      {"octavo.v1.JobService.GetJob", kViewer, kAsks},
      {"octavo.v1.JobService.ListJobs", kViewer, kAsks},
      {"octavo.v1.JobService.PlanJob", kOperator, kAsks, kPlans},
      {"octavo.v1.JobService.SubmitJob", kOperator, kChanges, kSubmits},
      {"octavo.v1.JobService.WatchJob", kViewer, kAsks, kWatches},
      {"octavo.v1.MosaicService.FindZOverlap", kOperator, kAsks, kMosaics},
      {"octavo.v1.MosaicService.RegisterTiles", kOperator, kAsks, kMosaics},
      {"octavo.v1.MosaicService.ResampleTiles", kOperator, kChanges, kMosaics},
      {"octavo.v1.MosaicService.StackSections", kOperator, kChanges, kMosaics},
      {"octavo.v1.MosaicService.StitchTiles", kOperator, kChanges, kMosaics},
      {"octavo.v1.OperationService.CancelOperation", kOperator, kChanges},
      {"octavo.v1.OperationService.GetOperation", kViewer, kAsks},
      {"octavo.v1.OperationService.ListOperations", kViewer, kAsks},
      {"octavo.v1.OperationService.WaitOperation", kViewer, kAsks, kWatches},
      {"octavo.v1.OperationService.WatchOperation", kViewer, kAsks, kWatches},
      {"octavo.v1.ScanService.CancelScan", kOperator, kChanges},
      {"octavo.v1.ScanService.GetScan", kViewer, kAsks},
      {"octavo.v1.ScanService.ListScans", kViewer, kAsks},
      {"octavo.v1.ScanService.MarkScan", kOperator, kChanges},
      {"octavo.v1.ScanService.PlanScan", kOperator, kAsks, kPlans},
      {"octavo.v1.ScanService.PlanWaveform", kOperator, kAsks, kPlans},
      {"octavo.v1.ScanService.PlotWaveform", kOperator, kAsks, kPlans},
      {"octavo.v1.ScanService.StopScan", kOperator, kChanges},
      {"octavo.v1.ScanService.SubmitScan", kOperator, kChanges, kSubmits},
      {"octavo.v1.ScanService.UpdateScan", kOperator, kChanges, kSubmits},
      {"octavo.v1.ScanService.WatchScan", kViewer, kAsks, kWatches},
      {"octavo.v1.SessionService.AcquireLease", kOperator, kChanges, kWatches},
      {"octavo.v1.SessionService.CloseSession", kOperator, kChanges},
      {"octavo.v1.SessionService.KeepAlive", kOperator, kAsks},
      {"octavo.v1.SessionService.ListLeases", kViewer, kAsks},
      {"octavo.v1.SessionService.ListSessions", kViewer, kAsks},
      {"octavo.v1.SessionService.OpenSession", kOperator, kChanges},
      {"octavo.v1.SessionService.ReleaseLease", kOperator, kChanges},
      {"octavo.v1.SessionService.RenewLease", kOperator, kAsks},
      {"octavo.v1.StreamService.OpenFrames", kViewer, kAsks},
      {"octavo.v1.StreamService.Subscribe", kViewer, kAsks, kWatches},
      {"octavo.v1.SystemService.GetInfo", kViewer, kAsks},
      {"octavo.v1.SystemService.GetMemory", kViewer, kAsks},
      {"octavo.v1.SystemService.ListDevices", kViewer, kAsks},
      {"octavo.v1.SystemService.Measure", kOperator, kChanges},
      {"octavo.v1.SystemService.ProbeStorage", kOperator, kChanges},
      {"octavo.v1.VolumeService.CommitVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.DeriveVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.DiscardVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.GetVolume", kViewer, kAsks},
      {"octavo.v1.VolumeService.HoldVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.ListVolumes", kViewer, kAsks},
      {"octavo.v1.VolumeService.ReadVolume", kViewer, kAsks},
      {"octavo.v1.VolumeService.ReleaseVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.RenderVolume", kViewer, kAsks, kRenderings},
      {"octavo.v1.VolumeService.RestoreVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.SpillVolume", kOperator, kChanges},
      {"octavo.v1.VolumeService.WaitVolume", kViewer, kAsks, kWatches},
      {"octavo.v1.VolumeService.WatchVolumes", kViewer, kAsks, kWatches},
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
