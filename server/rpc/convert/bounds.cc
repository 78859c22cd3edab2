#include "server/rpc/convert/bounds.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"

#include "gpu/base/status.h"
#include "gpu/mosaic/stack_sections.h"
#include "gpu/mosaic/tile_layout.h"
#include "server/model/scan_spec.h"
#include "server/security/grant.h"

namespace octavo::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Largest depth of a request; otherwise the client could choose the depth of a message that
// contains itself.
constexpr int kMostDepth = 16;

// Kinds of texts.
constexpr int64_t kName = 256;                        // scans/..., volumes/..., devices/...
constexpr int64_t kToken = 128;                       // of leases and sessions, request ids, etags
constexpr int64_t kFilter = 4096, kPageToken = 8192;  // as rpc/list has them
constexpr int64_t kTitle = 256, kPath = 4096, kShortName = 63;
// Numbers of elements.
constexpr int64_t kAxes = 8, kStates = 16, kLabels = 64, kRecord = 65536, kPoints = 131072,
                  kAngles = 262144, kFileAxes = 16;

Bound Text(const char* field, int64_t bytes) {
  return {.field = field, .count = 0, .bytes = bytes};
}
Bound Many(const char* field, int64_t count) {
  return {.field = field, .count = count, .bytes = 0};
}

std::vector<Bound> MakeBounds() {
  std::vector<Bound> bounds = {
      // -- scans
      {.field = "google.protobuf.FieldMask.paths", .count = kLabels, .bytes = kName},
      Text("SubmitScanRequest.request_id", kToken),
      Text("SubmitScanRequest.session_secret", kToken),
      Text("PlanScanRequest.session_secret", kToken),
      Text("GetScanRequest.name", kName),
      Text("WatchScanRequest.name", kName),
      Text("UpdateScanRequest.name", kName),
      Text("StopScanRequest.name", kName),
      Text("CancelScanRequest.name", kName),
      Text("MarkScanRequest.name", kName),
      Text("MarkScanRequest.marker", kShortName),
      Text("ScanSpec.title", kTitle),
      Text("ScanSpec.device", kName),
      Many("ScanSpec.markers", 16),
      Many("ScanSpec.chains", 4),
      Text("Subject.id", kPath),
      Text("Subject.site", kPath),
      Text("Subject.note", kPath),
      Many("Simulated.layers", model::SimulatedSource::kMostLayers),
      Text("ReplayFile.path", kPath),
      Text("Camera.id", kTitle),
      Text("Camera.pixel_format", kTitle),
      Text("Camera.trigger_source", kTitle),
      Many("Freeform.x_mm", kPoints),
      Many("Freeform.y_mm", kPoints),
      Many("Processing.window_values", kRecord),
      Many("Processing.Background.spectrum", kRecord),
      Many("Processing.KLinearisation.FloatArray.values", kRecord),
      Many("Processing.KLinearisation.DoubleArray.values", kRecord),
      Many("Processing.Dispersion.phase", kRecord),
      Text("CommitOptions.destination", kPath),
      Many("CommitOptions.chunk", kAxes),
      Many("CommitOptions.shard", kAxes),
      Many("CommitOptions.pyramid_um", 15),
      Text("Queue.name", kShortName),
      Text("Marker.name", kShortName),
      {.field = "Spread.devices", .count = 64, .bytes = kName},
      Text("VolumeChain.name", kShortName),
      Many("VolumeChain.operations", 8),
      // -- sources
      Text("PushRequest.scan", kName),
      Many("PushRequest.markers", 64),
      Text("PushRequest.data", kMostPushedBytes),
      Text("PushMarker.name", kShortName),
      Text("OpenRingRequest.scan", kName),
      Text("OpenRingRequest.job", kName),
      Many("ImportBufferRequest.shape", kAxes),
      Text("ImportBufferRequest.device", kName),
      Text("ImportBufferRequest.session_secret", kToken),
      Text("ImportBufferRequest.request_id", kToken),
      Text("PushProjectionsRequest.job", kName),
      Text("PushProjectionsRequest.data", kMostPushedBytes),
      Text("ImportVolumeRequest.title", kTitle),
      Text("ImportVolumeRequest.device", kName),
      Text("ImportVolumeRequest.group", kToken),
      Text("ImportVolumeRequest.request_id", kToken),
      Text("ImportVolumeRequest.session_secret", kToken),
      Text("ImportJob.path", kPath),
      Text("ImportJob.deposit", kToken),
      Text("OpenDepositRequest.name", kTitle),
      Text("ImportJob.dataset", kPath),
      {.field = "ImportJob.axes", .count = kFileAxes, .bytes = kShortName},
      Many("ImportJob.select", kFileAxes),
      Text("ImportJob.SelectEntry.key", kShortName),
      Many("ImportJob.spacing_um", 3),
      Text("ImportJob.SpacingUmEntry.key", kShortName),
      Text("ImportJob.order", kShortName),
      Many("ImportJob.start", kAxes),
      Many("ImportJob.count", kAxes),
      Many("RawNumbers.shape", kFileAxes),
      // -- volumes
      Text("GetVolumeRequest.name", kName),
      Text("ListVolumesRequest.parent", kName),
      Many("ListVolumesRequest.states", kStates),
      Text("ReadVolumeRequest.name", kName),
      Many("ReadVolumeRequest.start", kAxes),
      Many("ReadVolumeRequest.count", kAxes),
      Text("HoldVolumeRequest.name", kName),
      Text("ReleaseVolumeRequest.name", kName),
      Text("ReleaseVolumeRequest.lease_token", kToken),
      Text("CommitVolumeRequest.name", kName),
      Text("CommitVolumeRequest.lease_token", kToken),
      Text("CommitVolumeRequest.request_id", kToken),
      Text("DiscardVolumeRequest.name", kName),
      Text("DiscardVolumeRequest.lease_token", kToken),
      Text("DeriveVolumeRequest.name", kName),
      Many("DeriveVolumeRequest.operations", 8),
      Text("DeriveVolumeRequest.request_id", kToken),
      Text("WaitVolumeRequest.name", kName),
      Text("SpillVolumeRequest.name", kName),
      Text("SpillVolumeRequest.lease_token", kToken),
      Text("SpillVolumeRequest.request_id", kToken),
      Text("RestoreVolumeRequest.name", kName),
      Text("RestoreVolumeRequest.request_id", kToken),
      Text("RenderVolumeRequest.name", kName),
      Many("RenderVolumeRequest.start", kAxes),
      Many("RenderVolumeRequest.count", kAxes),
      // -- long-running operations
      Text("GetOperationRequest.name", kName),
      Text("WaitOperationRequest.name", kName),
      Text("CancelOperationRequest.name", kName),
      Text("WatchOperationRequest.name", kName),
      // -- operations
      Many("ArrayOperation.CropParameters.start", kAxes),
      Many("ArrayOperation.CropParameters.count", kAxes),
      Text("ArrayOperation.CombineParameters.other", kName),
      Many("ArrayOperation.ReduceParameters.axes", kAxes),
      Many("ArrayOperation.PercentileParameters.percentiles", 16),
      Many("ArrayOperation.PercentileParameters.axes", kAxes),
      Many("ArrayOperation.ResizeParameters.shape", kAxes),
      Many("ArrayOperation.FlipParameters.axes", kAxes),
      Many("ArrayOperation.TransposeParameters.axes", kAxes),
      Text("ArrayOperation.ReduceParameters.mask", kName),
      Text("ArrayOperation.PercentileParameters.mask", kName),
      Text("ArrayOperation.HistogramParameters.mask", kName),
      Many("ArrayOperation.AffineParameters.matrix", kAxes * kAxes),
      Many("ArrayOperation.AffineParameters.offset", kAxes),
      Many("ArrayOperation.AffineParameters.shape", kAxes),
      Text("ArrayOperation.MapCoordinatesParameters.coordinates", kName),
      Many("ArrayOperation.MapCoordinatesParameters.shape", kAxes),
      Text("ArrayOperation.DisplaceParameters.field", kName),
      Text("ArrayOperation.ShiftParameters.amounts", kName),
      Many("ArrayOperation.GaussianParameters.sigma", kAxes),
      Many("ArrayOperation.GaussianParameters.sigma_um", kAxes),
      Many("ArrayOperation.GaussianParameters.order", kAxes),
      Many("ArrayOperation.UniformParameters.size", kAxes),
      Many("ArrayOperation.UniformParameters.size_um", kAxes),
      Many("ArrayOperation.MedianParameters.axes", kAxes),
      Text("ArrayOperation.SelectParameters.mask", kName),
      Text("ArrayOperation.SelectParameters.other", kName),
      Text("ArrayOperation.ArgExtremeParameters.mask", kName),
      Text("ArrayOperation.PasteParameters.other", kName),
      Many("ArrayOperation.PasteParameters.start", kAxes),
      {.field = "ArrayOperation.ConcatenateParameters.others", .count = kAxes, .bytes = kName},
      Text("ArrayOperation.SurfaceParameters.mask", kName),
      Many("ArrayOperation.SurfaceParameters.tile", kAxes),
      Text("ArrayOperation.FlattenParameters.flat", kName),
      Many("ArrayOperation.FlattenParameters.axes", kAxes),
      Many("ArrayOperation.FocalCurvatureParameters.tile", kAxes),
      // -- buffers
      Many("CreateBufferRequest.shape", kAxes),
      Text("CreateBufferRequest.request_id", kToken),
      {.field = "Placement.devices", .count = 64, .bytes = kName},
      Text("WriteBufferRequest.data", 1 << 20),
      Text("WriteBufferRequest.Header.name", kName),
      Many("WriteBufferRequest.Header.shape", kAxes),
      Text("WriteBufferRequest.Header.lease_token", kToken),
      Text("ReadBufferRequest.name", kName),
      Many("ReadBufferRequest.start", kAxes),
      Many("ReadBufferRequest.count", kAxes),
      Text("ReadBufferRequest.lease_token", kToken),
      Text("GetBufferRequest.name", kName),
      Text("UpdateBufferRequest.name", kName),
      Text("UpdateBufferRequest.etag", kToken),
      Text("DestroyBufferRequest.name", kName),
      Text("DestroyBufferRequest.etag", kToken),
      Text("DestroyBufferRequest.lease_token", kToken),
      Text("SyncReplicasRequest.name", kName),
      Many("SyncReplicasRequest.targets", 64),
      Text("SyncReplicasRequest.lease_token", kToken),
      Text("CommitBufferRequest.name", kName),
      {.field = "CommitBufferRequest.axes", .count = kAxes, .bytes = 16},
      Many("CommitBufferRequest.spacing_um", kAxes),
      Text("CommitBufferRequest.title", 256),
      Text("CommitBufferRequest.lease_token", kToken),
      Text("CommitBufferRequest.request_id", kToken),
      Text("ApplyOpRequest.input", kName),
      Many("ApplyOpRequest.operations", 16),
      Text("ApplyOpRequest.output", kName),
      Text("ApplyOpRequest.request_id", kToken),
      Text("ApplyOpRequest.input_lease_token", kToken),
      Text("ApplyOpRequest.output_lease_token", kToken),
      Text("WaitBufferRequest.name", kName),
      // -- mosaics
      Text("TileSource.name", kName),
      Text("TileSource.lease_token", kToken),
      Many("RegisterTilesRequest.stage_um", kMostTiles),
      Many("StitchTilesRequest.position_um", kMostTiles),
      Text("StitchTilesRequest.request_id", kToken),
      Text("FindZOverlapRequest.fixed", kName),
      Text("FindZOverlapRequest.moving", kName),
      Text("FindZOverlapRequest.fixed_lease_token", kToken),
      Text("FindZOverlapRequest.moving_lease_token", kToken),
      Text("StackSection.name", kName),
      Text("StackSection.lease_token", kToken),
      Many("StackSectionsRequest.sections", kMostSections),
      Many("StackSectionsRequest.overlap", kMostSections),
      Text("StackSectionsRequest.request_id", kToken),
      Text("ResampleTilesRequest.request_id", kToken),
      Text("ExportRequest.name", kName),
      Text("ExportRequest.lease_token", kToken),
      Many("ExportRequest.accept", kStates),
      Text("RevokeExportRequest.name", kName),
      // -- jobs
      Text("SubmitJobRequest.request_id", kToken),
      Text("SubmitJobRequest.session_secret", kToken),
      Text("GetJobRequest.name", kName),
      Text("WatchJobRequest.name", kName),
      Text("CancelJobRequest.name", kName),
      Text("JobSpec.title", kTitle),
      Text("JobSpec.device", kName),
      Text("JobSpec.group", kToken),
      Text("ReprocessJob.volume", kName),
      Many("ReprocessJob.operations", 7),
      Text("DispersionAutofocusJob.volume", kName),
      Text("KCalibrationJob.volume", kName),
      Many("TomographyJob.angles_rad", kAngles),
      Text("TomographyJob.initial_volume", kName),
      Text("ProjectionFile.path", kPath),
      Text("ProjectionFile.projections", kPath),
      Text("ProjectionFile.flats", kPath),
      Text("ProjectionFile.darks", kPath),
      Text("ProjectionFile.angles", kPath),
      Many("ProjectionFile.flat_positions", kRecord),
      Many("ProjectionFile.dark_positions", kRecord),
      Many("ProjectionMosaic.tiles", 64),
      Text("ProjectionArrays.projections", kName),
      Text("ProjectionArrays.flats", kName),
      Text("ProjectionArrays.darks", kName),
      Many("TomographyPreparation.rings", 8),
      Many("TomographyPreparation.beam_hardening", 6),
      Many("TomographyPreparation.row_shifts", kAngles),
      Many("RotationCenter.pixels", kRecord),
      Text("ProjectionJob.input", kName),
      Many("ProjectionJob.angles_rad", kAngles),
      Many("ProjectionJob.axis_pixels", kRecord),
      // -- sessions and leases
      Text("OpenSessionRequest.client", kTitle),
      Text("KeepAliveRequest.secret", kToken),
      Text("CloseSessionRequest.secret", kToken),
      Text("AcquireLeaseRequest.resource", kName),
      Text("AcquireLeaseRequest.session_secret", kToken),
      Text("AcquireLeaseRequest.holder", kTitle),
      Text("RenewLeaseRequest.token", kToken),
      Text("ReleaseLeaseRequest.token", kToken),
      // -- grants
      Text("CreateGrantRequest.object", kName),
      Text("CreateGrantRequest.grantee", security::kMostGranteeBytes),
      Text("RevokeGrantRequest.name", kName),
      // -- the rest
      Text("SubscribeRequest.parent", kName),
      Many("SubscribeRequest.products", kStates),
      Text("MeasureRequest.device", kName),
      Text("ProbeStorageRequest.root", kPath),
      Text("ProbeStorageRequest.device", kName),
      Text("WatchVolumesRequest.filter", kFilter),
  };
  // Labels are the same everywhere.
  for (const char* message :
       {"ScanSpec", "JobSpec", "CreateBufferRequest", "ImportBufferRequest", "UpdateBufferRequest",
        "ApplyOpRequest", "StitchTilesRequest", "StackSectionsRequest", "ResampleTilesRequest",
        "SubscribeRequest", "ImportVolumeRequest"}) {
    bounds.push_back({.field = absl::StrCat(message, ".labels"), .count = kLabels, .bytes = 0});
    bounds.push_back(
        {.field = absl::StrCat(message, ".LabelsEntry.key"), .count = 0, .bytes = kShortName});
    bounds.push_back(
        {.field = absl::StrCat(message, ".LabelsEntry.value"), .count = 0, .bytes = kTitle});
  }
  // Lists are the same everywhere.
  for (const char* rows : {"Scans", "Volumes", "Jobs", "Buffers", "Exports", "Sessions", "Leases",
                           "Devices", "Cameras", "Operations", "Grants"}) {
    const std::string request = absl::StrCat("List", rows, "Request");
    bounds.push_back({.field = request + ".page_token", .count = 0, .bytes = kPageToken});
    bounds.push_back({.field = request + ".filter", .count = 0, .bytes = kFilter});
    bounds.push_back({.field = request + ".order_by", .count = 0, .bytes = kTitle});
  }
  return bounds;
}

// The bound of a field that is missing in the table (a test fails then, too).
const Bound& BoundOf(const FieldDescriptor* field) {
  static const auto& by_name = *[] {
    auto* map = new std::unordered_map<std::string, Bound>;
    for (const Bound& bound : Bounds()) map->emplace(bound.field, bound);
    return map;
  }();
  static const Bound& strict = *new Bound{.field = "", .count = 16, .bytes = kShortName};
  const auto it = by_name.find(std::string(absl::StripPrefix(field->full_name(), "octavo.v1.")));
  return it == by_name.end() ? strict : it->second;
}

absl::Status CheckText(const Bound& bound, const std::string& text, const std::string& path) {
  if (static_cast<int64_t>(text.size()) <= bound.bytes) return absl::OkStatus();
  return InvalidField(path, absl::StrCat("has ", text.size(), " bytes; allowed ", bound.bytes));
}

absl::Status Check(const Message& message, const std::string& path, int depth) {
  if (depth > kMostDepth)
    return InvalidField(path, absl::StrCat("is nested ", depth, " deep; allowed ", kMostDepth));
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  std::string scratch;
  for (const FieldDescriptor* field : fields) {
    const bool text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING,
               nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!field->is_repeated() && !text && !nested) continue;
    // Fields within a spec are named relative to it, as in all other errors.
    const bool spec = nested && path.empty() && field->name() == "spec";
    const std::string at = spec ? "" : absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (!field->is_repeated()) {
      OCTAVO_RETURN_IF_ERROR(
          nested ? Check(reflection->GetMessage(message, field), at, depth + 1)
                 : CheckText(BoundOf(field),
                             reflection->GetStringReference(message, field, &scratch), at));
      continue;
    }
    const Bound& bound = BoundOf(field);
    const int count = reflection->FieldSize(message, field);
    if (count > bound.count)
      return InvalidField(at, absl::StrCat("has ", count, " entries; allowed ", bound.count));
    for (int i = 0; (text || nested) && i < count; ++i) {
      const std::string one = absl::StrCat(at, "[", i, "]");
      OCTAVO_RETURN_IF_ERROR(
          nested ? Check(reflection->GetRepeatedMessage(message, field, i), one, depth + 1)
                 : CheckText(bound,
                             reflection->GetRepeatedStringReference(message, field, i, &scratch),
                             one));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<Bound>& Bounds() {
  static const auto& bounds = *new std::vector<Bound>(MakeBounds());
  return bounds;
}

absl::Status CheckBounds(const Message& request) { return Check(request, "", 1); }

absl::Status CheckPayload(const FieldDescriptor& field, int64_t bytes) {
  const int64_t allowed = BoundOf(&field).bytes;
  return bytes <= allowed
             ? absl::OkStatus()
             : InvalidField(field.name(), absl::StrCat("has ", bytes, " bytes; allowed ", allowed));
}

}  // namespace octavo::rpc
