#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "octavo/v1/job.pb.h"
#include "octavo/v1/reason.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/system.pb.h"
#include "octavo/v1/types.pb.h"
#include "octavo/v1/volume.pb.h"

#include "gpu/base/reason.h"
#include "server/engine/engine.h"
#include "server/job/job.h"
#include "server/model/frame.h"
#include "server/model/render_spec.h"
#include "server/model/scan_spec.h"
#include "server/model/status_types.h"
#include "server/model/subscription.h"
#include "server/picture/image.h"

// Pairs of functions that encode and decode between the contract and the model. Decoding checks
// everything that does not depend on the server's state (enums, lengths, finiteness, syntax);
// errors name the field.
namespace octavo::rpc {

// types.cc
v1::Reason EncodeReason(Reason reason);
void EncodeAdmissionReport(const model::AdmissionReport& report, v1::AdmissionReport* out);
void EncodeScanEvent(const model::ScanEvent& event, v1::ScanEvent* out);
void EncodeSourceStatus(const model::SourceCounts& counts, v1::SourceStatus* out);
void EncodeDeviceStatus(const model::DeviceStatus& device, v1::DeviceStatus* out);
void EncodeMeasured(const engine::Measured& figure, v1::Measurement* out);
void EncodeMemory(const model::MemoryStatus& memory, v1::GetMemoryResponse* out);
absl::Status CheckFinite(const char* field, double value);
absl::Status CheckEnum(const char* field, int value,
                       bool valid);  // `valid`: the result of E_IsValid
/// A bool of a oneof stands for itself: it is chosen, or another field is. OK if it is true.
absl::Status CheckChoice(const char* field, bool value);
absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels);
absl::Status CheckRequestId(const std::string& id);
/// A name of what makes volumes and frames, scans/<id> or jobs/<id>; empty is fine, too.
absl::Status CheckParent(const std::string& name);

// scan.cc
/// All but request_id, which is beside the spec.
absl::StatusOr<model::ScanSpec> DecodeScanSpec(const v1::ScanSpec& spec);
void EncodeScanSpec(const model::ScanSpec& spec, v1::ScanSpec* out);
absl::StatusOr<model::Processing> DecodeProcessing(const v1::Processing& processing);
void EncodeProcessing(const model::Processing& processing, v1::Processing* out);
void EncodeScan(const model::ScanStatus& scan, v1::Scan* out);
v1::RawType EncodeRawType(const model::Acquisition& acquisition);
/// The type of samples once they are unpacked (u16 if it is not given), and how they are packed.
DType RawDType(v1::RawType type);
math::Packing PackingOf(v1::RawType type);

// pattern.cc
absl::StatusOr<pattern::Pattern> DecodePattern(const v1::Pattern& pattern);
void EncodePattern(const pattern::Pattern& pattern, v1::Pattern* out);
/// At most kMostWaveformSamples from first_sample on; OutOfRange beyond the end.
absl::Status EncodeWaveform(const pattern::PatternWaveform& wave, int64_t first_sample,
                            v1::Waveform* out);
constexpr int64_t kMostWaveformSamples = 1 << 17;

// volume.cc
/// `field` is what errors call the options: "options", "retention.auto_commit".
absl::StatusOr<model::CommitOptions> DecodeCommitOptions(const v1::CommitOptions& options,
                                                         const std::string& field);
void EncodeCommitOptions(const model::CommitOptions& options, v1::CommitOptions* out);
void EncodeCommitResult(const storage::CommitOutcome& outcome, v1::CommitResult* out);
struct RenderOptions {
  model::RenderSpec spec;
  v1::Encoding encoding = v1::ENCODING_PNG;
  picture::ImageOptions image;
  int64_t chunk_bytes = 0;
};
absl::StatusOr<RenderOptions> DecodeRender(const v1::RenderVolumeRequest& request);
void EncodeRendered(const engine::Rendered& rendered, const picture::Picture& picture,
                    const RenderOptions& options, v1::RenderedPicture* out);
/// Errors call the fields "operations[i].…".
absl::StatusOr<std::vector<model::VolumeOperation>> DecodeVolumeOperations(
    const google::protobuf::RepeatedPtrField<v1::VolumeOperation>& in);
absl::StatusOr<derive::DeriveSpec> DecodeDerive(const v1::DeriveVolumeRequest& request);
void EncodeVolume(const model::VolumeStatus& volume, v1::Volume* out);

// job.cc
/// All but request_id, which is beside the spec. `client`: the group of jobs that name none.
absl::StatusOr<model::JobSpec> DecodeJobSpec(const v1::JobSpec& spec, const std::string& client);
void EncodeJobSpec(const model::JobSpec& spec, v1::JobSpec* out);
/// `brief`: without history and log.
void EncodeJob(const job::JobStatus& job, bool brief, v1::Job* out);

// frame.cc
struct SubscribeOptions {
  model::SubscribeSpec spec;
  v1::Encoding encoding = v1::ENCODING_RAW;
  std::optional<picture::ImageOptions> image;  // nothing = frames as they are
  int64_t chunk_bytes = 0;
};
absl::StatusOr<SubscribeOptions> DecodeSubscribe(const v1::SubscribeRequest& request);
absl::StatusOr<int64_t> DecodeChunkBytes(uint32_t chunk_bytes);
absl::StatusOr<picture::ImageOptions> DecodeImageOptions(const v1::ImageOptions& options,
                                                         v1::Encoding encoding);
/// Everything but encoding, offset, total, crc and data.
void EncodeFrameHeader(const model::Frame& frame, uint64_t dropped_before, v1::Frame* out);
/// Replaces the frame's shape, dtype, axes, spacing, levels and scale bar by those of the picture.
void EncodePictureHeader(const picture::Picture& picture, v1::Frame* out);

}  // namespace octavo::rpc
