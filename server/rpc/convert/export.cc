#include "server/rpc/convert/export.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/time.h"

namespace octavo::rpc {

absl::StatusOr<std::set<std::string>> DecodeAccept(const v1::ExportRequest& in) {
  std::set<std::string> backends;
  for (const int kind : in.accept()) {
    if (kind != v1::EXPORT_KIND_HOST_MEMFD && kind != v1::EXPORT_KIND_CUDA_VMM) {
      return InvalidField(
          "accept", absl::StrCat("has the unknown value ", kind, "; allowed HOST_MEMFD, CUDA_VMM"));
    }
    backends.insert(kind == v1::EXPORT_KIND_CUDA_VMM ? "cuda" : "host");
  }
  return backends;
}

void EncodeExportTicket(const exports::ExportTicket& in, v1::ExportResponse* out) {
  out->set_ticket(in.ticket.nonce);
  out->set_socket_path(in.ticket.path);
  *out->mutable_expire_time() = TimeFromNow(in.ticket.expires_seconds);
  out->set_name(in.status.name);
  if (in.memory.name.empty()) return;  // for the volumes of a scan: there is no memory yet
  out->set_kind(in.memory.backend == "cuda" ? v1::EXPORT_KIND_CUDA_VMM
                                            : v1::EXPORT_KIND_HOST_MEMFD);
  out->set_device_uuid(in.memory.device_uuid);
  out->set_byte_size(in.memory.type.bytes());
  out->set_mapped_bytes(in.memory.memory.mapped_bytes);
  EncodeElementType(in.memory.type, out->mutable_type());
  for (const int64_t extent : in.memory.type.dims) out->add_shape(extent);
  out->set_version(in.memory.version);
  out->set_memory(absl::StrCat(absl::Hex(in.memory.memory.id, absl::kZeroPad16)));
  out->set_generation(in.status.generation);
}

void EncodeExport(const exports::ExportStatus& in, v1::ExportStatus* out) {
  out->set_name(in.name);
  out->set_resource(in.of);
  out->set_replica(in.replica);
  out->set_device(in.device);
  out->set_state(static_cast<v1::ExportStatus::State>(in.state));
  out->set_uid(in.uid.has_value() ? static_cast<int64_t>(*in.uid) : -1);
  out->set_pid(in.pid);
  out->set_client(in.client);
  EncodeOwner(in.owner, out);
  out->set_mapped_bytes(in.mapped_bytes);
  *out->mutable_create_time() = WallTime(in.created);
  out->set_memory(absl::StrCat(absl::Hex(in.memory, absl::kZeroPad16)));
  out->set_generation(in.generation);
  out->set_detached(in.detached);
  out->set_overdue(in.overdue);
}

}  // namespace octavo::rpc
