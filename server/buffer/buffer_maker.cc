#include "server/buffer/buffer_maker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/device_names.h"
#include "server/base/resource_names.h"
#include "server/buffer/buffer_errors.h"
#include "server/security/rights.h"

namespace octavo::buffer {

absl::StatusOr<ArrayType> BufferMaker::CheckType(Scalar scalar, uint64_t lanes,
                                                 const std::vector<uint64_t>& shape) const {
  ArrayType type{.scalar = scalar,
                 .lanes = lanes == 0 ? 1 : static_cast<int64_t>(std::min<uint64_t>(lanes, 1 << 20)),
                 .dims = {}};
  if (scalar == Scalar{} || static_cast<int>(scalar) > kMostScalar) {
    return BadField(
        Reason::kBadType, "type.dtype",
        absl::StrCat("has the unknown value ", static_cast<int>(scalar), "; allowed U8 to C128"));
  }
  if (type.lanes > 4)
    return BadField(Reason::kBadType, "type.lanes", absl::StrCat("is ", lanes, "; allowed 1 to 4"));
  if (type.lanes > 1 && IsComplex(scalar)) {
    return BadField(Reason::kBadType, "type.lanes",
                    absl::StrCat("is ", lanes, "; complex elements (", NameOf(scalar), ") have 1"));
  }
  if (shape.empty() || shape.size() > 3)
    return BadField(Reason::kBadShape, "shape",
                    absl::StrCat("has ", shape.size(), " dims; allowed 1 to 3"));
  uint64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0)
      return BadField(Reason::kBadShape, "shape", absl::StrCat("[", d, "] is 0; allowed >= 1"));
    if (shape[d] > static_cast<uint64_t>(limits_.most_elements) / elements) {
      return WithInfo(absl::InvalidArgumentError(
                          absl::StrCat("shape: ", absl::StrJoin(shape, " x "), " makes more than ",
                                       limits_.most_elements, " elements")),
                      {.reason = Reason::kTooManyElements,
                       .field = "shape",
                       .numbers = {{"allowed", absl::StrCat(limits_.most_elements)}}});
    }
    elements *= shape[d];
    type.dims.push_back(static_cast<int64_t>(shape[d]));
  }
  return type;
}

absl::StatusOr<std::vector<int>> BufferMaker::CheckDevices(
    const std::vector<uint32_t>& devices) const {
  const base::DeviceNames& names = ledger_->names();
  const int count = names.numbered();
  std::vector<int> out;
  for (const uint32_t device : devices) {
    if (device >= static_cast<uint32_t>(count)) {
      return BadField(Reason::kBadPlacement, "placement.devices",
                      absl::StrCat("names devices/", device, "; there are ", names.Numbered()));
    }
    if (std::find(out.begin(), out.end(), static_cast<int>(device)) != out.end()) {
      return BadField(Reason::kBadPlacement, "placement.devices",
                      absl::StrCat("names devices/", device, " twice"));
    }
    out.push_back(static_cast<int>(device));
  }
  for (int d = 0; devices.empty() && d < count; ++d) out.push_back(d);
  for (const int d : out) {
    if (const absl::Status health = order_.device(d).Health(); !health.ok()) {
      return WithInfo(
          absl::UnavailableError(absl::StrCat(base::DeviceName(d), " is down: ", health.message())),
          {.reason = Reason::kDeviceDown,
           .field = "placement.devices",
           .numbers = {{"device", base::DeviceName(d)}}});
    }
  }
  return out;
}

absl::Status BufferMaker::CheckMayHold(int device, const std::string& field) const {
  const base::DeviceNames& names = ledger_->names();
  if (!names.IsForJobs(device)) return absl::OkStatus();
  return BadField(Reason::kBadPlacement, field,
                  absl::StrCat("is on ", names.Name(device),
                               ", which has no buffers, so the result has no place; allowed are "
                               "arrays on ",
                               names.Numbered(), ": write it to a buffer there (WriteBuffer)"));
}

absl::StatusOr<ArrayType> BufferMaker::Check(const model::BufferSpec& spec,
                                             const model::Caller& caller) const {
  OCTAVO_ASSIGN_OR_RETURN(ArrayType type, CheckType(spec.scalar, spec.lanes, spec.shape));
  OCTAVO_RETURN_IF_ERROR(CheckTtl(spec.ttl_seconds));
  if (spec.is_private && caller.key.empty())
    return InvalidField("is_private",
                        "is given, but the call carries no key in the metadata octavo-owner-key");
  return type;
}

std::string BufferMaker::NewName() const {
  return absl::StrCat("buffers/", base::NewId(limits_.server_id));
}

absl::Status BufferMaker::BeginBytes(const std::string& client, int64_t bytes) {
  MutexLock lock(table_.mutex());
  const auto made = being_made_.find(client);
  int64_t has = made == being_made_.end() ? 0 : made->second;
  for (const auto& [number, buffer] : table_.Buffers()) {
    if (buffer->status.client == client && !buffer->status.imported.has_value())
      has += buffer->status.type.bytes() * static_cast<int64_t>(buffer->replicas.size());
  }
  if (limits_.quota_bytes > 0 && has + bytes > limits_.quota_bytes) {
    return WithInfo(absl::ResourceExhaustedError(
                        absl::StrCat("'", client, "' has buffers of ", SizeText(has),
                                     ", and this one needs ", SizeText(bytes), "; its quota is ",
                                     SizeText(limits_.quota_bytes), "; destroy some buffers")),
                    {.reason = Reason::kQuota,
                     .field = "",
                     .numbers = {{"held", absl::StrCat(has)},
                                 {"wanted", absl::StrCat(bytes)},
                                 {"quota", absl::StrCat(limits_.quota_bytes)},
                                 {"retryable", "true"}}});
  }
  being_made_[client] += bytes;
  return absl::OkStatus();
}

void BufferMaker::EndBytes(const std::string& client, int64_t bytes) {
  MutexLock lock(table_.mutex());
  EndBytesLocked(client, bytes);
}

void BufferMaker::EndBytesLocked(const std::string& client, int64_t bytes) {
  const auto made = being_made_.find(client);
  if ((made->second -= bytes) == 0) being_made_.erase(made);
}

absl::Status BufferMaker::AllocateAndClear(const std::vector<int>& devices, int64_t bytes,
                                           bool ready, BufferEntry* buffer) {
  for (const int d : devices) {
    model::AdmissionReport report;
    auto replica =
        ReserveReplica(ledger_, d, HolderOf(buffer->status), bytes, &report, buffer->status.owner);
    if (InfoOf(replica.status()).reason == Reason::kQuota) return replica.status();
    if (!replica.ok()) return DoesNotFit(report);
    OCTAVO_ASSIGN_OR_RETURN((*replica)->memory, ClientMemory::Allocate(order_.device(d), bytes));
    buffer->replicas.push_back(*std::move(replica));
  }
  // Clears the memory in every case, so that its earlier contents are never visible.
  for (const auto& replica : buffer->replicas) {
    OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica->device));
    OCTAVO_RETURN_IF_ERROR(
        order_.device(replica->device).Fill(stream, replica->memory.data(), bytes, 0));
    OCTAVO_RETURN_IF_ERROR(
        order_.End(replica->device, stream, {}, {&replica->order}, {replica}, nullptr));
    replica->state = ready ? model::BufferState::kReady : model::BufferState::kUninitialized;
    replica->version = ready ? 1 : 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<BufferPtr> BufferMaker::Make(const ArrayType& type, const std::vector<int>& devices,
                                            const model::Caller& caller, bool ready,
                                            bool is_private) {
  const int64_t bytes = type.bytes(), all = bytes * static_cast<int64_t>(devices.size());
  auto buffer = std::make_shared<BufferEntry>();
  buffer->status.name = NewName();
  buffer->status.type = type;
  buffer->status.client = caller.client;
  buffer->status.owner = security::OwnerOf(caller.principal);
  buffer->status.is_private = is_private;
  buffer->key = is_private ? caller.key : "";
  OCTAVO_RETURN_IF_ERROR(BeginBytes(buffer->status.client, all));
  absl::Cleanup made_or_not = [&] { EndBytes(buffer->status.client, all); };
  const absl::Status made = AllocateAndClear(devices, bytes, ready, buffer.get());
  std::move(made_or_not).Invoke();
  OCTAVO_RETURN_IF_ERROR(Annotate(made, absl::StrCat("while making a buffer of ", type.Text())));
  buffer->status.created = table_.Now();
  return buffer;
}

BufferDraft::~BufferDraft() {
  if (counted_) maker_->EndBytes(buffer_->status.client, buffer_->status.type.bytes());
}

absl::StatusOr<std::unique_ptr<BufferDraft>> BufferMaker::Draft(const model::BufferSpec& spec,
                                                                const model::Caller& caller,
                                                                int device,
                                                                memory::Ledger::ChargeId charge) {
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType type, Check(spec, caller));
  auto buffer = std::make_shared<BufferEntry>();
  buffer->status.name = NewName();
  buffer->status.type = type;
  buffer->status.client = caller.client;
  buffer->status.owner = security::OwnerOf(caller.principal);
  buffer->status.labels = spec.labels;
  buffer->status.is_private = spec.is_private;
  buffer->key = spec.is_private ? caller.key : "";
  buffer->ttl_seconds = spec.ttl_seconds;
  const auto replica = std::make_shared<BufferReplica>();
  replica->device = device;
  buffer->replicas.push_back(replica);
  auto draft = std::make_unique<BufferDraft>(this, std::move(buffer));
  OCTAVO_RETURN_IF_ERROR(BeginBytes(caller.client, type.bytes()));
  draft->counted_ = true;
  auto memory = ClientMemory::Allocate(order_.device(device), type.bytes());
  if (!memory.ok())
    return Annotate(memory.status(), absl::StrCat("while making a buffer of ", type.Text()));
  replica->memory = *std::move(memory);
  replica->ledger = ledger_;
  replica->charge = charge;
  return draft;
}

model::BufferStatus BufferMaker::Insert(BufferDraft& draft) {
  const BufferPtr& buffer = draft.buffer_;
  BufferReplica& replica = *buffer->replicas.front();
  ledger_->Move(replica.charge, memory::ChargeKind::kBuffer, HolderOf(buffer->status));
  (void)Failpoint("draft_published");
  buffer->status.created = table_.Now();
  MutexLock lock(table_.mutex());
  replica.state = model::BufferState::kReady;
  replica.version = 1;
  table_.Touch(*buffer);
  model::BufferStatus status = table_.StatusOf(*buffer);
  table_.Insert(buffer);  // which counts its bytes
  EndBytesLocked(buffer->status.client, buffer->status.type.bytes());
  draft.counted_ = false;
  return status;
}

absl::StatusOr<model::BufferStatus> BufferMaker::Create(const ArrayType& type,
                                                        const model::BufferSpec& spec,
                                                        const model::Caller& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, CheckDevices(spec.devices));
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer,
                          Make(type, devices, caller, !spec.uninitialized, spec.is_private));
  buffer->status.labels = spec.labels;
  buffer->ttl_seconds = spec.ttl_seconds;
  MutexLock lock(table_.mutex());
  table_.Touch(*buffer);
  model::BufferStatus status = table_.StatusOf(*buffer);
  table_.Insert(buffer);
  return status;
}

}  // namespace octavo::buffer
