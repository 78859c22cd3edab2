#include "server/buffer/buffer_remover.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/security/rights.h"

namespace octavo::buffer {

absl::StatusOr<std::function<void()>> BufferRemover::Remove(
    BufferTurn& turn, const std::string& name, const Going& going,
    const std::function<absl::Status(const BufferEntry&)>& may) {
  BufferPtr gone;  // dropped without the lock: that frees memory
  model::BufferStatus status;
  {
    MutexLock lock(table_.mutex());
    gone = table_.Find(name);
    if (gone == nullptr) return [] {};
    OCTAVO_RETURN_IF_ERROR(may(*gone));
    status = table_.StatusOf(*gone);
    status.gone = going.code;
    table_.Remove(gone,
                  going.code == Reason::kExpired   ? "expired"
                  : going.code == Reason::kRevoked ? "revoked"
                                                   : "destroyed",
                  going.text);
    // Reads that are under way find it, and stop.
    if (status.imported.has_value()) gone->replicas.front()->state = model::BufferState::kLost;
  }
  exports_->Gone(name);
  turn.Forget(name);
  auto tell = [this, status, key = gone->key, text = going.text] {
    watchers_.Tell(base::ChangeKind::kGone, status, key, text);
  };
  if (status.imported.has_value()) LetGo(std::move(gone), going.why);
  return tell;
}

void BufferRemover::LetGo(BufferPtr gone, ImportEnd why) {
  gone->replicas.front()->loan->BeginEnd(why);
  const int device = gone->replicas.front()->device;
  order_.WhenPassed(device, {}, [this, gone = std::move(gone)](const absl::Status&) {
    reads_.LetGo(*gone->replicas.front());
  });
}

void BufferRemover::Revoke(const std::string& name, ImportEnd why, const std::string& text) {
  absl::StatusOr<std::function<void()>> tell = [] {};
  {
    BufferTurn turn(turns_);
    tell = Remove(turn, name, {.code = Reason::kRevoked, .text = text, .why = why},
                  [](const BufferEntry&) { return absl::OkStatus(); });
  }
  if (tell.ok()) (*tell)();
}

absl::Status BufferRemover::Destroy(const std::string& name, const std::string& etag,
                                    const std::string& lease_token, const model::Caller& caller,
                                    bool detach) {
  const auto unchanged = [&](const BufferEntry& buffer) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(security::MayChange(caller.principal, buffer.status.owner, name));
    return CheckEtag(name, etag, absl::StrCat(buffer.revision));
  };
  {
    MutexLock lock(table_.mutex());
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table_.Find(name, caller));
    OCTAVO_RETURN_IF_ERROR(unchanged(*buffer));
  }
  std::function<void()> tell;
  {
    BufferTurn turn(turns_);
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(name, session::LeaseMode::kExclusive, lease_token, 0, "DestroyBuffer"));
    OCTAVO_ASSIGN_OR_RETURN(
        tell, Remove(turn, name,
                     {.code = Reason::kDestroyed,
                      .text = "destroyed by a client",
                      .why = ImportEnd::kDestroyed},
                     [&](const BufferEntry& buffer) -> absl::Status {
                       OCTAVO_RETURN_IF_ERROR(unchanged(buffer));
                       OCTAVO_RETURN_IF_ERROR(turn.Stands());
                       if (IsBeingWritten(buffer))
                         return BeingWritten(name);  // under a lease that ended meanwhile
                       return detach ? absl::OkStatus() : exports_->CheckFree(name);
                     }));
  }
  tell();
  return absl::OkStatus();
}

void BufferRemover::Expire(int64_t now_ns) {
  std::vector<std::string> overdue;
  std::vector<std::pair<model::BufferStatus, std::string>> warnings;  // with its key
  {
    MutexLock lock(table_.mutex());
    for (const auto& [number, buffer] : table_.Buffers()) {
      if (buffer->expires_ns == 0) continue;
      const auto left = static_cast<double>(buffer->expires_ns - now_ns) * 1e-9;
      if (left <= 0) {
        overdue.push_back(buffer->status.name);
      } else if (!buffer->warned && left <= std::min(60.0, buffer->ttl_seconds / 2)) {
        buffer->warned = true;
        warnings.emplace_back(table_.StatusOf(*buffer), buffer->key);
      }
    }
    table_.Purge(now_ns);
  }
  for (const auto& [status, key] : warnings)
    watchers_.Tell(base::ChangeKind::kExpiring, status, key, "its time to live ends");
  for (const auto& name : overdue) {
    absl::StatusOr<std::function<void()>> tell = [] {};
    {
      BufferTurn turn(turns_);
      // A caller that is using the buffer now keeps it a little longer.
      if (!turn.Enter(name, session::LeaseMode::kExclusive, "", 0, "expiry").ok()) continue;
      tell = Remove(turn, name,
                    {.code = Reason::kExpired,
                     .text = "its time to live was over",
                     .why = ImportEnd::kExpired},
                    [&](const BufferEntry& buffer) {
                      // A client may have extended its time since, or may be writing to it under a
                      // lease that has ended.
                      return buffer.expires_ns != 0 && buffer.expires_ns <= now_ns &&
                                     !IsBeingWritten(buffer)
                                 ? absl::OkStatus()
                                 : absl::AbortedError("it lives on");
                    });
    }
    if (tell.ok()) (*tell)();
  }
}

}  // namespace octavo::buffer
