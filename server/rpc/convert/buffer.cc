#include "server/rpc/convert/buffer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_context.h"

#include "gpu/base/status.h"
#include "server/base/device_names.h"
#include "server/base/resource_names.h"
#include "server/rpc/convert/array_operation.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/request_digest.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {
namespace {

/// An unknown value is none of the types: the cast alone would keep its lowest byte.
Scalar ScalarOf(v1::Dtype dtype) {
  return v1::Dtype_IsValid(dtype) ? static_cast<Scalar>(dtype) : static_cast<Scalar>(255);
}

std::string NoBuffersOn(const std::string& device, const base::DeviceNames& names) {
  const absl::string_view why = device != base::kHostDeviceName  ? absl::string_view()
                                : names.Find(device).has_value() ? ", which has no buffers"
                                                                 : base::kNoHostForJobs;
  return absl::StrCat("is '", device, "'", why, "; allowed are ", names.Numbered());
}

absl::StatusOr<std::vector<uint32_t>> DecodePlacement(const v1::Placement& in,
                                                      const base::DeviceNames& names) {
  std::vector<uint32_t> out;
  for (const std::string& name : in.devices()) {
    const std::optional<int> device = base::DeviceIndex(name);
    if (!device.has_value()) {
      const std::string field = absl::StrCat("placement.devices[", out.size(), "]");
      return WithInfo(
          absl::InvalidArgumentError(absl::StrCat(field, ": ", NoBuffersOn(name, names))),
          {.reason = Reason::kBadPlacement, .field = field, .numbers = {}});
    }
    out.push_back(static_cast<uint32_t>(*device));
  }
  return out;
}

}  // namespace

model::Caller ClientOf(const grpc::CallbackServerContext& context) {
  model::Caller caller;
  const auto& metadata = context.client_metadata();
  if (auto it = metadata.find("octavo-client"); it != metadata.end())
    // Whatever bytes a client calls itself by: answers to others hold the name.
    caller.client = Utf8({it->second.data(), std::min<size_t>(it->second.size(), 128)});
  if (auto it = metadata.find("octavo-owner-key"); it != metadata.end())
    caller.key = std::string(it->second.data(), it->second.size());
  return caller;
}

absl::StatusOr<model::BufferSpec> DecodeCreate(const v1::CreateBufferRequest& in,
                                               const base::DeviceNames& names) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
  if (!v1::CreateBufferRequest::Fill_IsValid(in.fill()))
    return InvalidField("fill",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.fill())));
  OCTAVO_ASSIGN_OR_RETURN(std::vector<uint32_t> devices, DecodePlacement(in.placement(), names));
  v1::CreateBufferRequest body = in;
  body.clear_request_id();
  return model::BufferSpec{
      .scalar = ScalarOf(in.type().dtype()),
      .lanes = in.type().lanes(),
      .shape = {in.shape().begin(), in.shape().end()},
      .devices = std::move(devices),
      .uninitialized = in.fill() == v1::CreateBufferRequest::FILL_UNINITIALIZED,
      .labels = {in.labels().begin(), in.labels().end()},
      .ttl_seconds = ToSeconds(in.ttl()),
      .is_private = in.is_private(),
      .request_id = in.request_id(),
      .request_digest = absl::StrCat("create:", RequestDigest(body))};
}

absl::StatusOr<model::BufferImportSpec> DecodeImport(const v1::ImportBufferRequest& in,
                                                     const base::DeviceNames& names) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
  if (!v1::ImportKind_IsValid(in.kind())) {
    return InvalidField("kind", absl::StrCat("has the unknown value ", static_cast<int>(in.kind()),
                                             "; allowed HOST_MEMFD, CUDA_VMM"));
  }
  std::vector<uint32_t> devices;
  if (!in.device().empty()) {
    const std::optional<int> device = base::DeviceIndex(in.device());
    if (!device.has_value()) {
      return InvalidField("device", NoBuffersOn(in.device(), names));
    }
    devices.push_back(static_cast<uint32_t>(*device));
  }
  v1::ImportBufferRequest body = in;
  body.clear_request_id();
  return model::BufferImportSpec{
      .array = {.scalar = ScalarOf(in.type().dtype()),
                .lanes = in.type().lanes(),
                .shape = {in.shape().begin(), in.shape().end()},
                .devices = std::move(devices),
                .labels = {in.labels().begin(), in.labels().end()},
                .ttl_seconds = ToSeconds(in.ttl()),
                .is_private = in.is_private(),
                .request_id = in.request_id(),
                .request_digest = absl::StrCat("import:", RequestDigest(body))},
      .kind = static_cast<model::ImportKind>(in.kind()),
      .byte_size = in.byte_size(),
      .session_secret = in.session_secret()};
}

void EncodeImportTicket(const buffer::ImportTicket& in, v1::ImportBufferResponse* out) {
  out->set_name(in.buffer);
  out->set_ticket(in.ticket.nonce);
  out->set_socket_path(in.ticket.path);
  *out->mutable_expire_time() = WallTime(in.expires_unix_ns);
  out->set_kind(static_cast<v1::ImportKind>(in.kind));
  out->set_device(base::DeviceName(in.device));
  out->set_device_uuid(in.device_uuid);
  out->set_byte_size(static_cast<uint64_t>(in.bytes));
}

absl::StatusOr<model::BufferWriteSpec> DecodeWriteHeader(const v1::WriteBufferRequest::Header& in) {
  const bool one = in.target().target_case() == v1::BufferTarget::kReplica;
  if (in.target().target_case() == v1::BufferTarget::kAll)
    OCTAVO_RETURN_IF_ERROR(CheckChoice("header.target.all", in.target().all()));
  return model::BufferWriteSpec{.name = in.name(),
                                .all = !one,
                                .replica = one ? in.target().replica() : 0,
                                .byte_offset = in.byte_offset(),
                                .total_bytes = in.total_bytes(),
                                .has_type = in.has_type(),
                                .scalar = ScalarOf(in.type().dtype()),
                                .lanes = in.type().lanes(),
                                .shape = {in.shape().begin(), in.shape().end()},
                                .has_crc = in.has_crc32c(),
                                .crc32c = in.crc32c(),
                                .lease_token = in.lease_token(),
                                .lease_fence = in.lease_fence(),
                                .if_version = in.if_version()};
}

absl::StatusOr<model::BufferReadSpec> DecodeRead(const v1::ReadBufferRequest& in) {
  using Which = model::BufferReadSpec::Which;
  using Selector = v1::ReadBufferRequest::Selector;
  const Selector& selector = in.selector();
  if (selector.which_case() == Selector::kAny)
    OCTAVO_RETURN_IF_ERROR(CheckChoice("selector.any", selector.any()));
  if (selector.which_case() == Selector::kStacked)
    OCTAVO_RETURN_IF_ERROR(CheckChoice("selector.stacked", selector.stacked()));
  const Which which = selector.which_case() == Selector::kReplica   ? Which::kReplica
                      : selector.which_case() == Selector::kStacked ? Which::kStacked
                                                                    : Which::kAny;
  return model::BufferReadSpec{.name = in.name(),
                               .which = which,
                               .replica = which == Which::kReplica ? selector.replica() : 0,
                               .start = {in.start().begin(), in.start().end()},
                               .count = {in.count().begin(), in.count().end()},
                               .if_version = in.if_version(),
                               .allow_uninitialized = in.allow_uninitialized(),
                               .allow_incoherent = in.allow_incoherent(),
                               .lease_token = in.lease_token(),
                               .lease_fence = in.lease_fence()};
}

absl::StatusOr<model::BufferApplySpec> DecodeApply(const v1::ApplyOpRequest& in) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
  v1::ApplyOpRequest body = in;
  body.clear_request_id();
  model::BufferApplySpec out{.input = in.input(),
                             .output = in.output(),
                             .labels = {in.labels().begin(), in.labels().end()},
                             .ttl_seconds = ToSeconds(in.ttl()),
                             .request_id = in.request_id(),
                             .request_digest = absl::StrCat("apply:", RequestDigest(body)),
                             .input_lease_token = in.input_lease_token(),
                             .output_lease_token = in.output_lease_token()};
  for (int i = 0; i < in.operations_size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(
        Op op, DecodeArrayOperation(in.operations(i), absl::StrCat("operations[", i, "]"),
                                    &out.others, nullptr));
    out.operations.push_back(std::move(op));
  }
  return out;
}

absl::StatusOr<engine::BufferCommitSpec> DecodeCommitBuffer(const v1::CommitBufferRequest& in) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  engine::BufferCommitSpec out{.name = in.name(),
                               .axes = {in.axes().begin(), in.axes().end()},
                               .spacing_um = {in.spacing_um().begin(), in.spacing_um().end()},
                               .title = in.title(),
                               .if_version = in.if_version(),
                               .lease_token = in.lease_token(),
                               .lease_fence = in.lease_fence()};
  if (in.has_replica()) out.replica = in.replica();
  OCTAVO_ASSIGN_OR_RETURN(out.options, DecodeCommitOptions(in.options(), "options"));
  return out;
}

void EncodeElementType(const ArrayType& type, v1::ElementType* out) {
  out->set_dtype(static_cast<v1::Dtype>(type.scalar));
  out->set_lanes(static_cast<uint32_t>(type.lanes));
}

void EncodeBuffer(const model::BufferStatus& in, v1::Buffer* out) {
  out->set_name(in.name);
  EncodeElementType(in.type, out->mutable_type());
  for (const int64_t d : in.type.dims) out->add_shape(d);
  out->set_byte_size(in.type.bytes());
  for (const auto& replica : in.replicas) {
    auto* to = out->add_replicas();
    to->set_index(replica.index);
    to->set_device(base::DeviceName(replica.device));
    to->set_device_uuid(replica.device_uuid);
    to->set_version(replica.version);
    to->set_tier(v1::TIER_DEVICE);
    to->set_allocated_bytes(replica.bytes);
    to->set_state(static_cast<v1::BufferState>(replica.state));
  }
  out->set_coherent(in.coherent);
  out->set_state(static_cast<v1::BufferState>(in.state));
  out->set_origin(in.origin);
  out->set_client(in.client);
  EncodeOwner(in.owner, out);
  out->set_is_private(in.is_private);
  out->mutable_labels()->insert(in.labels.begin(), in.labels.end());
  *out->mutable_create_time() = WallTime(in.created);
  if (in.expires_unix_ns != 0) *out->mutable_expire_time() = WallTime(in.expires_unix_ns);
  out->set_shared_leases(static_cast<int32_t>(in.shared_leases));
  out->set_exclusive_leases(static_cast<int32_t>(in.exclusive_leases));
  out->set_charged_bytes(in.charged_bytes);
  out->set_etag(in.etag);
  out->set_sequence(in.sequence);
  if (!in.imported.has_value()) return;
  v1::ImportedMemory* imported = out->mutable_imported();
  imported->set_kind(static_cast<v1::ImportKind>(in.imported->kind));
  imported->set_mapped_bytes(in.imported->mapped_bytes);
  imported->set_session(in.imported->session);
  imported->set_uid(in.imported->uid);
  imported->set_pid(in.imported->pid);
}

}  // namespace octavo::rpc
