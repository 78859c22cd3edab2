#include "server/scan/scan_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/scan/scan_session.h"
#include "server/security/rights.h"

namespace octavo::scan {

namespace {

bool Interrupts(const model::QueueOptions& options) {
  return options.insert == model::QueueInsert::kInterruptAtVolume ||
         options.insert == model::QueueInsert::kInterruptNow;
}

}  // namespace

absl::Status ScanQueues::Add(const std::shared_ptr<ScanSession>& session,
                             const model::QueueOptions& options,
                             const security::Principal& caller) {
  if (options.name.empty()) {
    session->Start();
    return absl::OkStatus();
  }
  std::shared_ptr<ScanSession> interrupted;
  {
    MutexLock lock(mutex_);
    if (const auto found = queues_.find(options.name);
        found != queues_.end() && Interrupts(options))
      OCTAVO_RETURN_IF_ERROR(CheckInterruption(found->second, caller));
    Queue& queue = queues_[options.name];
    Entry entry{.name = session->name(), .session = session};
    if (!queue.acquiring.name.empty()) {
      const bool interrupts = Interrupts(options);
      queue.waiting.insert(interrupts ? queue.waiting.begin() : queue.waiting.end(),
                           std::move(entry));
      if (!interrupts) return absl::OkStatus();
      interrupted = queue.acquiring.session.lock();
      if (interrupted == nullptr) return absl::OkStatus();
    } else {
      queue.acquiring = std::move(entry);
    }
  }
  if (interrupted == nullptr) {
    session->Start();
    return absl::OkStatus();
  }
  const std::string reason = absl::StrCat("interrupted by ", session->name());
  if (options.insert == model::QueueInsert::kInterruptNow) {
    interrupted->Cancel(Reason::kInterrupted, reason);
  } else {
    interrupted->Stop(Reason::kInterrupted, reason + " after the current volume");
  }
  return absl::OkStatus();
}

absl::Status ScanQueues::CheckInterruption(const model::QueueOptions& options,
                                           const security::Principal& caller) {
  if (!Interrupts(options)) return absl::OkStatus();
  MutexLock lock(mutex_);
  const auto queue = queues_.find(options.name);
  return queue == queues_.end() ? absl::OkStatus() : CheckInterruption(queue->second, caller);
}

absl::Status ScanQueues::CheckInterruption(const Queue& queue, const security::Principal& caller) {
  const std::shared_ptr<ScanSession> acquiring = queue.acquiring.session.lock();
  if (acquiring == nullptr) return absl::OkStatus();
  return security::MayChange(caller, acquiring->owner(), acquiring->name());
}

void ScanQueues::Acquired(const std::string& queue, const std::string& session) {
  std::shared_ptr<ScanSession> next;
  {
    MutexLock lock(mutex_);
    auto it = queues_.find(queue);
    if (it == queues_.end()) return;
    auto& [acquiring, waiting] = it->second;
    if (acquiring.name != session) {  // ended before its turn came
      std::erase_if(waiting, [&](const Entry& entry) { return entry.name == session; });
      return;
    }
    while (next == nullptr && !waiting.empty()) {
      acquiring = std::move(waiting.front());
      waiting.pop_front();
      next = acquiring.session.lock();
    }
    if (next == nullptr) queues_.erase(it);
  }
  if (next != nullptr) next->Start();
}

int64_t ScanQueues::PositionOf(const std::string& queue, const std::string& session) {
  MutexLock lock(mutex_);
  auto it = queues_.find(queue);
  if (it == queues_.end()) return 0;
  const auto& waiting = it->second.waiting;
  auto self = std::find_if(waiting.begin(), waiting.end(),
                           [&](const Entry& entry) { return entry.name == session; });
  return self == waiting.end() ? 0 : self - waiting.begin() + 1;
}

}  // namespace octavo::scan
