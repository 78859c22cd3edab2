#include "server/buffer/buffer_table.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/buffer/buffer_errors.h"
#include "server/security/rights.h"

namespace octavo::buffer {
namespace {

/// From harmless to grave.
int RankOf(model::BufferState state) {
  return state == model::BufferState::kReady           ? 0
         : state == model::BufferState::kUninitialized ? 1
         : state == model::BufferState::kWriting       ? 2
         : state == model::BufferState::kPartial       ? 3
                                                       : 4;
}

bool HasKey(const model::Caller& caller, const BufferEntry& buffer) {
  return !buffer.status.is_private || buffer.key == caller.key;
}

}  // namespace

// -- entries

absl::StatusOr<BufferPtr> BufferTable::Find(const std::string& name, const model::Caller& caller) {
  if (absl::StartsWith(name, "volumes/")) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            name, " is a volume: sealed, it can be read and be the input of operations only")),
        {.reason = Reason::kSealed, .field = "name", .numbers = {}});
  }
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    const std::string* const gone = tombstones_.Find(name);
    return WithInfo(
        absl::NotFoundError(gone == nullptr
                                ? absl::StrCat("no buffer ", name,
                                               " (one that is gone is remembered for ten minutes)")
                                : absl::StrCat(name, " is gone: ", *gone)),
        {.reason = Reason::kNoBuffer, .field = "name", .numbers = {}});
  }
  if (!HasKey(caller, *it->second)) {
    return WithInfo(
        absl::PermissionDeniedError(absl::StrCat(
            name, " is private; its owner's calls carry a key in the metadata octavo-owner-key")),
        {.reason = Reason::kNotOwner, .field = "name", .numbers = {}});
  }
  return it->second;
}

absl::StatusOr<BufferPtr> BufferTable::FindToChange(const std::string& name,
                                                    const model::Caller& caller) {
  OCTAVO_ASSIGN_OR_RETURN(BufferPtr buffer, Find(name, caller));
  OCTAVO_RETURN_IF_ERROR(security::MayChange(caller.principal, buffer->status.owner, name));
  return buffer;
}

bool BufferTable::IsGone(const std::string& name) {
  MutexLock lock(mutex_);
  return tombstones_.Find(name) != nullptr;
}

BufferPtr BufferTable::Find(const std::string& name) {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

bool BufferTable::MaySee(const std::string& name, const model::Caller& caller) {
  if (!absl::StartsWith(name, "buffers/")) return true;
  MutexLock lock(mutex_);
  if (const auto it = by_name_.find(name); it != by_name_.end()) return HasKey(caller, *it->second);
  const std::string* const key = tombstones_.KeyOf(name);
  return key == nullptr || *key == caller.key;
}

void BufferTable::Insert(const BufferPtr& buffer) {
  buffer->number = ++inserted_;
  const auto place = buffers_.emplace(buffer->number, buffer).first;
  absl::Cleanup out = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { buffers_.erase(place); };
  by_name_.emplace(buffer->status.name, buffer);
  std::move(out).Cancel();  // in both or in neither
}

void BufferTable::Remove(const BufferPtr& buffer, const std::string& reason,
                         const std::string& text) {
  by_name_.erase(buffer->status.name);
  buffers_.erase(buffer->number);
  tombstones_.Add(buffer->status.name, text, Now().monotonic_ns);
  if (buffer->status.is_private) tombstones_.AddPrivate(buffer->status.name, buffer->key);
  ++totals_.gone[reason];
}

// -- changes and checks of an entry

void BufferTable::Touch(BufferEntry& buffer) {
  ++buffer.revision;
  buffer.warned = false;
  const bool ends = buffer.ttl_seconds != 0;
  const auto ttl_ns = static_cast<int64_t>(buffer.ttl_seconds * 1e9);
  const TimePoint now = Now();
  buffer.expires_ns = ends ? now.monotonic_ns + ttl_ns : 0;
  buffer.expires_unix_ns = ends ? now.unix_ns + ttl_ns : 0;
}

bool BufferTable::IsCoherent(const BufferEntry& buffer) const {
  return std::all_of(buffer.replicas.begin(), buffer.replicas.end(), [&](const auto& r) {
    return r->version == buffer.replicas[0]->version && r->state == model::BufferState::kReady &&
           IsHealthy(r->device);
  });
}

absl::Status BufferTable::CheckReadable(const BufferEntry& buffer, size_t replica,
                                        bool allow_uninitialized) const {
  const BufferReplica& r = *buffer.replicas[replica];
  const model::BufferState state = IsHealthy(r.device) ? r.state : model::BufferState::kLost;
  const std::string what = absl::StrCat("replica ", replica, " of ", buffer.status.name);
  switch (state) {
    case model::BufferState::kReady: return absl::OkStatus();
    case model::BufferState::kUninitialized:
      if (allow_uninitialized) return absl::OkStatus();
      return Precondition(Reason::kUninitialized, absl::StrCat(what, " was never written"));
    case model::BufferState::kWriting:
      return Precondition(Reason::kPartial, absl::StrCat(what, " is being written"));
    case model::BufferState::kPartial:
      return Precondition(
          Reason::kPartial,
          absl::StrCat(what, " was written in part only; write it whole, or use SyncReplicas"));
    case model::BufferState::kLost: break;
  }
  return WithInfo(
      absl::DataLossError(absl::StrCat(what, " is lost with ", base::DeviceName(r.device))),
      {.reason = Reason::kLost, .field = "name", .numbers = {}});
}

absl::Status BufferTable::CheckWritable(const BufferEntry& buffer, const std::string& field) {
  if (!buffer.status.imported.has_value()) return absl::OkStatus();
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat(
          buffer.status.name,
          " is memory that a client lends: the server only reads it. Its client writes it "
          "and publishes the new version; another buffer can take the result")),
      {.reason = Reason::kImported, .field = field, .numbers = {}});
}

std::function<void(const absl::Status&)> BufferTable::LostUnlessOk(
    std::shared_ptr<BufferReplica> replica) {
  return [this, replica = std::move(replica)](const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    replica->state = model::BufferState::kLost;
  };
}

// -- what clients see

model::BufferStatus BufferTable::StatusOf(const BufferEntry& buffer) const {
  model::BufferStatus status = buffer.status;
  status.state = model::BufferState::kReady;
  for (size_t i = 0; i < buffer.replicas.size(); ++i) {
    const BufferReplica& r = *buffer.replicas[i];
    status.replicas.push_back({.index = static_cast<uint32_t>(i),
                               .device = r.device,
                               .device_uuid = devices_[static_cast<size_t>(r.device)]->info().uuid,
                               .version = r.version,
                               .bytes = r.memory.bytes(),
                               .state = IsHealthy(r.device) ? r.state : model::BufferState::kLost});
    if (!status.imported.has_value()) status.charged_bytes += r.memory.bytes();
    if (RankOf(status.replicas.back().state) > RankOf(status.state))
      status.state = status.replicas.back().state;
  }
  status.coherent = IsCoherent(buffer);
  const auto leases = leases_->CountOf(status.name);
  status.shared_leases = leases.shared;
  status.exclusive_leases = leases.exclusive;
  if (buffer.expires_ns > 0)
    status.expires_seconds =
        std::max(0.0, static_cast<double>(buffer.expires_ns - Now().monotonic_ns) * 1e-9);
  status.expires_unix_ns = buffer.expires_unix_ns;
  status.number = buffer.number;
  status.revision = buffer.revision;
  status.etag = absl::StrCat(buffer.revision);
  return status;
}

absl::StatusOr<model::BufferStatus> BufferTable::Get(const std::string& name,
                                                     const model::Caller& caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, Find(name, caller));
  return StatusOf(*buffer);
}

std::vector<model::BufferStatus> BufferTable::List(const model::Caller& caller, uint64_t after,
                                                   size_t most) {
  MutexLock lock(mutex_);
  std::vector<model::BufferStatus> list;
  for (auto it = buffers_.upper_bound(after); it != buffers_.end() && list.size() < most; ++it) {
    if (HasKey(caller, *it->second)) list.push_back(StatusOf(*it->second));
  }
  return list;
}

// -- counts

void BufferTable::CountRefusal(const absl::Status& answer) {
  if (answer.ok()) return;
  MutexLock lock(mutex_);
  ++totals_.refusals[std::string(Name(ReasonOrCode(answer)))];
}

BufferTotals BufferTable::Count() {
  MutexLock lock(mutex_);
  BufferTotals totals = totals_;
  totals.buffers = static_cast<int64_t>(buffers_.size());
  std::map<std::string, int64_t> owned;
  for (int d = 0; d < static_cast<int>(devices_.size()); ++d)
    totals.replicas_on[d] = totals.bytes_on[d] = 0;
  for (const auto& [number, buffer] : buffers_) {
    if (buffer->status.imported.has_value()) continue;  // the memory is its client's
    const int64_t bytes = buffer->status.type.bytes();
    for (const auto& replica : buffer->replicas) {
      ++totals.replicas_on[replica->device];
      totals.bytes_on[replica->device] += bytes;
    }
    totals.bytes += bytes * static_cast<int64_t>(buffer->replicas.size());
    owned[buffer->status.client] += bytes * static_cast<int64_t>(buffer->replicas.size());
  }
  totals.owners = std::ssize(owned);
  for (const auto& [owner, bytes] : owned)
    totals.largest_owner_bytes = std::max(totals.largest_owner_bytes, bytes);
  return totals;
}

}  // namespace octavo::buffer
