// Any request of any method, as the server takes it: parts are counted, the message is parsed, its
// bounds are checked and it is converted. Two bytes choose the message (TypeOf), the rest are its
// bytes; request_mutator.cc changes fields rather than bytes. What is accepted must survive a
// second conversion.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"

#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/export.pb.h"
#include "octavo/v1/ingest.pb.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/mosaic.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/session.pb.h"
#include "octavo/v1/stream.pb.h"
#include "octavo/v1/system.pb.h"
#include "octavo/v1/volume.pb.h"

#include "server/pattern/plan.h"
#include "server/rpc/convert/bounds.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/export.h"
#include "server/rpc/convert/field_mask.h"
#include "server/rpc/convert/fixed_bytes.h"
#include "server/rpc/convert/mosaic.h"
#include "server/rpc/convert/operation.h"
#include "server/rpc/convert/request_digest.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/tomography.h"
#include "server/rpc/convert/volume_import.h"
#include "server/rpc/convert/volume_read.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/request_parts.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/request_types.h"

namespace octavo::rpc {
namespace {

using fuzz::Input;
using fuzz::Require;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t kMostParts = 65536;
constexpr size_t kMostTrailers = 8 << 10;  // that clients take

// An error as the client gets it: it says what is wrong, and fits into what clients take.
void CheckError(const absl::Status& status) {
  const grpc::Status told = ToGrpc(status);
  Require(!told.ok() && !told.error_message().empty());
  Require(told.error_message().size() + told.error_details().size() <= kMostTrailers);
  Require(!absl::IsInternal(status) && !absl::IsUnknown(status));
}

/// Whether the conversion succeeded; `check` gets its result.
template <class Result, class Check>
bool Succeeds(const absl::StatusOr<Result>& result, Check check) {
  if (result.ok()) {
    check(*result);
  } else {
    CheckError(result.status());
  }
  return result.ok();
}
template <class Result>
void Decodes(const absl::StatusOr<Result>& result) {
  (void)Succeeds(result, [](const Result&) {});
}
bool Holds(const absl::Status& status) {
  if (!status.ok()) CheckError(status);
  return status.ok();
}

// Spans of years have fewer digits as seconds than as nanoseconds: a second conversion may differ
// in the last of them.
void WithoutDurations(Message* message) {
  const auto* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (field->message_type()->full_name() == "google.protobuf.Duration") {
      reflection->ClearField(message, field);
    } else if (!field->is_repeated()) {
      WithoutDurations(reflection->MutableMessage(message, field));
    } else {
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i)
        WithoutDurations(reflection->MutableRepeatedMessage(message, field, i));
    }
  }
}

/// What was decoded is encoded, and that is accepted and means the same.
template <class Wire, class Decoded, class Decode, class Encode>
void IsStable(const Decoded& first, Decode decode, Encode encode) {
  Wire once, twice;
  encode(first, &once);
  const auto again = decode(once);
  Require(again.ok());
  encode(*again, &twice);
  WithoutDurations(&once);
  WithoutDurations(&twice);
  Require(FixedBytes(once) == FixedBytes(twice));
}

// -- parts and bytes

grpc::ByteBuffer InSlices(absl::string_view bytes, size_t first) {
  first = std::min(first, bytes.size());
  const grpc::Slice slices[2] = {grpc::Slice(bytes.data(), first),
                                 grpc::Slice(bytes.data() + first, bytes.size() - first)};
  return grpc::ByteBuffer(slices, 2);
}

void CheckMemory(const Message& message, const grpc::ByteBuffer& buffer, size_t bytes) {
  const int64_t parts = CountParts(buffer, message.GetDescriptor(), kMostParts);
  Require(parts >= 0 && parts <= kMostParts + 1);
  Require(CheckParts(buffer, message.GetDescriptor()).ok() ||
          (bytes > 2 * static_cast<size_t>(kMostParts) && parts > kMostParts));
  // What the count is for: the memory of a message has a bound that it and the bytes tell. 16 bytes
  // for each of a packed array (int64 of a byte, and room to grow), 2 KiB for a message.
  if (parts <= kMostParts)
    Require(message.SpaceUsedLong() <= 4096 + 32 * bytes + 2048 * static_cast<size_t>(parts));
}

template <class T>
void CheckPayloadSplit(const T& whole, const grpc::ByteBuffer& buffer, uint32_t number) {
  const auto split = SplitPayload<T>(buffer, number);
  if (!split.has_value()) return;
  std::string payload;
  for (const auto& [data, size] : split->payload) payload.append(data, size);
  T rest = whole;
  rest.clear_data();
  Require(FixedBytes(split->message) == FixedBytes(rest));
  Require(payload == whole.data());
  const FieldDescriptor& field = *T::descriptor()->FindFieldByNumber(static_cast<int>(number));
  Require(CheckPayload(field, std::ssize(payload)).ok() == CheckBounds(whole).ok() ||
          !CheckBounds(rest).ok());
}

// -- conversions of each kind of request

void CheckPattern(pattern::Pattern pattern, double rate_hz) {
  IsStable<v1::Pattern>(pattern, DecodePattern, EncodePattern);
  // A plan has an entry for each record: here only of small ones, and of what no plan has.
  const double records = static_cast<double>(pattern.ascans_per_bscan + pattern.flyback_records) *
                             static_cast<double>(std::max<int64_t>(pattern.bscans_per_volume, 1)) *
                             static_cast<double>(std::max<int64_t>(pattern.passes(), 1)) +
                         static_cast<double>(pattern.volume_flyback_records);
  if (pattern.flyback == pattern::FlybackPolicy::kMinimumTime || pattern.has_limits) return;
  if (records > 1 << 14 && records < 1e12) return;
  if (pattern.points_x_mm.size() > 1 << 12) return;
  const absl::Status resolved = pattern::ResolvePattern(pattern, rate_hz);
  if (!Holds(resolved)) return;
  const auto plan = pattern::MakePlan(pattern, rate_hz);
  if (!Succeeds(plan, [](const auto&) {})) return;
  Require(plan->rows > 0 && plan->columns > 0 && plan->volume_records > 0);
  for (int kind = 0; kind < plan->kinds; ++kind) {
    Require(std::ssize(plan->kind[kind].placement) == plan->volume_records);
    for (const int32_t place : plan->kind[kind].placement)
      Require(place >= -1 && place < plan->rows * plan->columns);
  }
  (void)Succeeds(pattern::MakeWaveform(pattern, *plan, 0, rate_hz), [&](const auto& wave) {
    for (const double x : wave.x) Require(std::isfinite(x));
    v1::Waveform out;
    Require(EncodeWaveform(wave, 0, &out).ok());
  });
}

void CheckScanSpec(const v1::ScanSpec& in) {
  (void)Succeeds(DecodeScanSpec(in), [&](const model::ScanSpec& spec) {
    IsStable<v1::ScanSpec>(spec, DecodeScanSpec, EncodeScanSpec);
    CheckPattern(spec.pattern, spec.acquisition.record_rate_hz);
    Require(EncodeRawType(spec.acquisition) != v1::RAW_TYPE_UNSPECIFIED);
  });
}

void CheckJobSpec(const v1::JobSpec& in) {
  const auto decode = [](const v1::JobSpec& spec) { return DecodeJobSpec(spec, "ipv4:1.2.3.4:5"); };
  (void)Succeeds(decode(in), [&](const model::JobSpec& spec) {
    IsStable<v1::JobSpec>(spec, decode, EncodeJobSpec);
  });
}

void CheckRenderOptions(const picture::ImageOptions& image, v1::Encoding encoding,
                        int64_t chunk_bytes) {
  Require(v1::Encoding_IsValid(encoding) && chunk_bytes > 0 && chunk_bytes <= 64 << 20);
  (void)image;
}

void Convert(const v1::SubmitScanRequest& in) {
  (void)Holds(CheckRequestId(in.request_id()));
  CheckScanSpec(in.spec());
}
void Convert(const v1::PlanScanRequest& in) { CheckScanSpec(in.spec()); }
void Convert(const v1::PlanWaveformRequest& in) { CheckScanSpec(in.spec()); }
void Convert(const v1::PlotWaveformRequest& in) { CheckScanSpec(in.spec()); }
void Convert(const v1::UpdateScanRequest& in) {
  (void)Succeeds(FieldsOfMask(in.update_mask(), {"window", "dispersion", "levels"}),
                 [](const auto& fields) { Require(!fields.empty()); });
  (void)Succeeds(DecodeProcessing(in.processing()), [](const model::Processing& processing) {
    IsStable<v1::Processing>(processing, DecodeProcessing, EncodeProcessing);
  });
}
void Convert(const v1::SubmitJobRequest& in) {
  (void)Holds(CheckRequestId(in.request_id()));
  CheckJobSpec(in.spec());
}
void Convert(const v1::PlanJobRequest& in) { CheckJobSpec(in.spec()); }
void Convert(const v1::ImportVolumeRequest& in) { CheckJobSpec(JobSpecOf(in)); }
void Convert(const v1::CreateBufferRequest& in) {
  (void)Succeeds(DecodeCreate(in, base::DeviceNames(2)), [](const model::BufferSpec& spec) {
    Require(spec.ttl_seconds == spec.ttl_seconds && !spec.request_digest.empty());
  });
}
void Convert(const v1::ImportBufferRequest& in) { Decodes(DecodeImport(in, base::DeviceNames(2))); }
void Convert(const v1::WriteBufferRequest& in) {
  (void)Succeeds(DecodeWriteHeader(in.header()), [&](const model::BufferWriteSpec& spec) {
    // A type that the contract does not have is none of those that buffers have.
    const auto type = in.header().type().dtype();
    if (!v1::Dtype_IsValid(type)) Require(!v1::Dtype_IsValid(static_cast<int>(spec.scalar)));
  });
}
void Convert(const v1::ReadBufferRequest& in) {
  Decodes(DecodeChunkBytes(in.chunk_bytes()));
  Decodes(DecodeRead(in));
}
void Convert(const v1::ApplyOpRequest& in) {
  (void)Succeeds(DecodeApply(in), [&](const model::BufferApplySpec& spec) {
    Require(std::ssize(spec.operations) == in.operations_size());
    for (const std::string& other : spec.others) Require(!other.empty());
  });
}
void Convert(const v1::UpdateBufferRequest& in) {
  (void)Holds(CheckLabels(in.labels()));
  (void)Holds(CheckDuration("ttl", in.ttl()));
  (void)Succeeds(FieldsOfMask(in.update_mask(), {"labels", "ttl"}), [](const auto& fields) {
    for (const std::string& field : fields) Require(field == "labels" || field == "ttl");
  });
}
void Convert(const v1::CommitBufferRequest& in) {
  (void)Succeeds(DecodeCommitBuffer(in), [](const engine::BufferCommitSpec& spec) {
    const auto decode = [](const v1::CommitOptions& options) {
      return DecodeCommitOptions(options, "options");
    };
    IsStable<v1::CommitOptions>(spec.options, decode, EncodeCommitOptions);
  });
}
void Convert(const v1::CommitVolumeRequest& in) {
  Decodes(DecodeCommitOptions(in.options(), "options"));
}
void Convert(const v1::DeriveVolumeRequest& in) { Decodes(DecodeDerive(in)); }
void Convert(const v1::ReadVolumeRequest& in) {
  Decodes(DecodeChunkBytes(in.chunk_bytes()));
  (void)Succeeds(DecodeVolumeRead(in), [](const model::VolumeRead& read) {
    Require(read.downsample >= 1 && read.downsample <= 64);
  });
}
void Convert(const v1::RenderVolumeRequest& in) {
  (void)Succeeds(DecodeRender(in), [](const RenderOptions& options) {
    CheckRenderOptions(options.image, options.encoding, options.chunk_bytes);
  });
}
void Convert(const v1::SubscribeRequest& in) {
  (void)Succeeds(DecodeSubscribe(in), [](const SubscribeOptions& options) {
    CheckRenderOptions(options.image.value_or(picture::ImageOptions()), options.encoding,
                       options.chunk_bytes);
  });
}
void Convert(const v1::RegisterTilesRequest& in) { Decodes(DecodeRegisterTiles(in)); }
void Convert(const v1::StitchTilesRequest& in) { Decodes(DecodeStitchTiles(in)); }
void Convert(const v1::FindZOverlapRequest& in) { (void)DecodeFindZOverlap(in); }
void Convert(const v1::StackSectionsRequest& in) { Decodes(DecodeStackSections(in)); }
void Convert(const v1::ResampleTilesRequest& in) { Decodes(DecodeResampleTiles(in)); }
void Convert(const v1::ExportRequest& in) { Decodes(DecodeAccept(in)); }
void Convert(const v1::ListVolumesRequest& in) { (void)Holds(CheckParent(in.parent())); }

/// Calls Convert if the message is one of the types.
template <class... Types>
void ConvertAs(const Message& message) {
  (void)((message.GetDescriptor() == Types::descriptor() &&
          (Convert(static_cast<const Types&>(message)), true)) ||
         ...);
}

// Fields that many requests have, by name.
void CheckCommon(const Message& message) {
  const auto* reflection = message.GetReflection();
  if (const auto* field = message.GetDescriptor()->FindFieldByName("wait");
      field != nullptr && field->message_type() != nullptr && !field->is_repeated()) {
    const auto* wait =
        dynamic_cast<const google::protobuf::Duration*>(&reflection->GetMessage(message, field));
    Require(wait != nullptr);
    const auto now = std::chrono::steady_clock::now();
    for (const auto deadline : {std::chrono::system_clock::time_point::max(),
                                std::chrono::system_clock::now() + std::chrono::seconds(5)}) {
      (void)Succeeds(DecodeWait(reflection->HasField(message, field) ? wait : nullptr, deadline),
                     [&](const auto& until) {
                       if (until.has_value()) Require(*until > now - std::chrono::seconds(60));
                     });
    }
  }
  for (const char* name : {"ttl", "duration", "timeout"}) {
    const auto* field = message.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr || field->message_type() == nullptr) continue;
    const auto* span =
        dynamic_cast<const google::protobuf::Duration*>(&reflection->GetMessage(message, field));
    if (span != nullptr && Holds(CheckDuration(name, *span)))
      Require(std::isfinite(ToSeconds(*span)) &&
              CheckDuration(name, ToDuration(ToSeconds(*span))).ok());
  }
  // What tells a retry from another request: the same for the same fields.
  const std::string fixed = FixedBytes(message);
  const std::unique_ptr<Message> again(message.New());
  Require(again->ParseFromString(fixed) && FixedBytes(*again) == fixed);
  Require(RequestDigest(*again) == RequestDigest(message));
}

void Run(Input input) {
  const Message& prototype = fuzz::RequestOf(input.Number<uint16_t>());
  const absl::string_view bytes = input.Rest();
  const std::unique_ptr<Message> message(prototype.New());
  const grpc::ByteBuffer buffer = InSlices(bytes, bytes.size() / 3);
  const bool parsed = message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!parsed) {
    (void)CountParts(buffer, prototype.GetDescriptor(), kMostParts);
    return;
  }
  CheckMemory(*message, buffer, bytes.size());
  if (const auto* push = dynamic_cast<const v1::PushRequest*>(message.get()))
    CheckPayloadSplit(*push, buffer, v1::PushRequest::kDataFieldNumber);
  if (const auto* push = dynamic_cast<const v1::PushProjectionsRequest*>(message.get()))
    CheckPayloadSplit(*push, buffer, v1::PushProjectionsRequest::kDataFieldNumber);
  if (!Holds(CheckBounds(*message))) return;
  CheckCommon(*message);
  ConvertAs<v1::SubmitScanRequest, v1::PlanScanRequest, v1::PlanWaveformRequest,
            v1::PlotWaveformRequest, v1::UpdateScanRequest, v1::SubmitJobRequest,
            v1::PlanJobRequest, v1::ImportVolumeRequest, v1::CreateBufferRequest,
            v1::ImportBufferRequest, v1::WriteBufferRequest, v1::ReadBufferRequest,
            v1::ApplyOpRequest, v1::UpdateBufferRequest, v1::CommitBufferRequest,
            v1::CommitVolumeRequest, v1::DeriveVolumeRequest, v1::ReadVolumeRequest,
            v1::RenderVolumeRequest, v1::SubscribeRequest, v1::RegisterTilesRequest,
            v1::StitchTilesRequest, v1::FindZOverlapRequest, v1::StackSectionsRequest,
            v1::ResampleTilesRequest, v1::ExportRequest, v1::ListVolumesRequest>(*message);
}

}  // namespace
}  // namespace octavo::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 20) return 0;
  octavo::rpc::Run({data, size});
  return 0;
}
