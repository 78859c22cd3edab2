#include "server/exports/export_feed.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/model/resolved_scan.h"

namespace octavo::exports {
namespace {

namespace wire = handoff::v1;

constexpr size_t kMostMapped = 4096;
constexpr uint32_t kUsual = 4;  // Present.most

bool Told(const model::VolumeStatus& volume) {
  return volume.derived_from.empty() && !volume.is_raw && volume.job.empty();
}

}  // namespace

/// One client's subscription.
class ExportFeeds::Feed final : public handoff::Grant, public std::enable_shared_from_this<Feed> {
 public:
  Feed(ExportFeeds* all, std::string scan, ExportPeer peer)
      : scan_(std::move(scan)), all_(all), peer_(std::move(peer)) {
    peer_.borrows = true;
  }

  wire::Purpose purpose() const override { return wire::PURPOSE_FEED; }
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer& peer, const wire::Present& request,
                                       std::shared_ptr<handoff::Link> link) override {
    const uint32_t most = request.has_most() ? request.most() : kUsual;
    OCTAVO_RETURN_IF_ERROR(InRange("most", most, 1, kMost));
    {
      MutexLock turn(turn_);
      who_ = peer;
      peer_.uid = peer.uid;
      link_ = std::move(link);
      most_ = most;
      every_ = request.every();
      mapped_ = {request.have().begin(), request.have().end()};
      {
        MutexLock lock(all_->mutex_);
        all_->feeds_.push_back(shared_from_this());
        ++all_->open_;
      }
      // From here on the feed receives volumes; they wait for their turn.
      if (every_) {
        for (const model::VolumeStatus& volume :
             all_->context_.volumes->List({.parent = scan_, .in_memory = true})) {
          if (Told(volume) && (volume.state == model::VolumeState::kHeld ||
                               volume.state == model::VolumeState::kCommitting))
            WaitLocked(volume);
        }
        CatchUpLocked();
      }
    }
    handoff::Answer answer;
    answer.message.mutable_feed_opened()->set_scan(scan_);
    answer.message.mutable_feed_opened()->set_most(most);
    return answer;
  }

  absl::StatusOr<handoff::Answer> Message(const wire::ClientMessage& request) override {
    handoff::Answer answer;
    if (request.has_release()) {
      const std::string& name = request.release().name();
      MutexLock turn(turn_);
      const auto it = taken_.find(name);
      if (it == taken_.end()) {
        return WithInfo(
            absl::NotFoundError(absl::StrCat(name, " is no export of this connection (any more)")),
            {.reason = Reason::kNoExport, .field = "name", .numbers = {}});
      }
      GiveBackLocked(it);
      CatchUpLocked();
      answer.message.mutable_released()->set_name(name);
      return answer;
    }
    if (request.has_forget()) {
      MutexLock turn(turn_);
      size_t known = 0;
      for (const std::string& id : request.forget().memory()) known += mapped_.erase(id);
      answer.message.mutable_forgotten()->set_count(static_cast<uint32_t>(known));
      return answer;
    }
    return handoff::Refusal(absl::StatusCode::kInvalidArgument, Reason::kProtocol,
                            "a feed takes Release, Forget and End");
  }

  void Ended(handoff::GrantEnd) override {
    {
      MutexLock lock(all_->mutex_);
      all_->open_ -= static_cast<int64_t>(std::erase(all_->feeds_, shared_from_this()));
    }
    MutexLock turn(turn_);
    link_ = nullptr;
    waiting_.clear();
    while (!taken_.empty()) GiveBackLocked(taken_.begin());
  }

  void Offer(const model::VolumeStatus& volume) {
    MutexLock turn(turn_);
    if (link_ == nullptr || volume.index < next_index_)
      return;  // held again, after a failed commit or a return from another tier
    next_index_ = volume.index + 1;
    if (every_) {
      WaitLocked(volume);
      CatchUpLocked();
    } else if (taken_.size() >= most_ || !TellLocked(volume)) {
      SkipLocked();
    }
  }

  /// The scan has ended, or the server drains.
  void EndScan() {
    MutexLock turn(turn_);
    if (link_ == nullptr || end_told_) return;
    CatchUpLocked();
    if (!waiting_.empty() && !all_->context_.exports->draining())
      return;  // more follow as the client returns volumes
    while (!waiting_.empty()) {
      waiting_.pop_front();
      SkipLocked();
    }
    end_told_ = true;
    wire::ServerMessage message;
    message.mutable_feed_ended()->set_scan(scan_);
    message.mutable_feed_ended()->set_skipped(std::exchange(skipped_, 0));
    (void)link_->Send(std::move(message));
  }

  const std::string scan_;

 private:
  void WaitLocked(const model::VolumeStatus& volume) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    next_index_ = std::max(next_index_, volume.index + 1);
    if (waiting_.size() < kMostWaiting) {
      waiting_.push_back(volume.name);
    } else {
      SkipLocked();
    }
  }
  void SkipLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    ++skipped_;
    ++all_->skipped_;
  }
  void CatchUpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    while (!waiting_.empty() && taken_.size() < most_) {
      const std::string name = std::move(waiting_.front());
      waiting_.pop_front();
      const auto volume = all_->context_.volumes->Get(name);
      if (!volume.ok() || !TellLocked(*volume)) SkipLocked();
    }
  }
  /// Makes the export and sends it. False if this volume cannot be exported.
  bool TellLocked(const model::VolumeStatus& volume) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    const Context& context = all_->context_;
    // An early check before the loan; Take decides among all clients that take at the same time.
    const int64_t spare = context.scans->SpareSlots(volume);
    if (context.exports->SlotsOf(scan_) >= spare) return false;
    const model::Retention* retention =
        volume.origin == nullptr ? nullptr : &volume.origin->spec.retention;
    volume::VolumeHold loan;
    if (retention != nullptr && retention->mode == model::RetentionMode::kLive) {
      auto lent =
          context.volumes->Hold(volume.name, volume::HoldKind::kLoan, retention->hold_slots);
      if (!lent.ok()) return false;
      loan = *std::move(lent);
    }
    std::string name;
    auto answer = context.exports->Take(volume.name, peer_, who_, mapped_, link_, &name, spare);
    if (!answer.ok()) return false;
    if (mapped_.size() >= kMostMapped)
      mapped_.clear();  // then the server sends a descriptor again, and the client closes it
    mapped_.insert(answer->message.exported().memory());
    taken_[name] = std::move(loan);
    wire::ServerMessage message;
    wire::FeedVolume& told = *message.mutable_feed_volume();
    told.mutable_exported()->Swap(answer->message.mutable_exported());
    told.set_index(volume.index);
    told.set_complete(volume.complete);
    told.set_missing_ascans(volume.missing_ascans);
    for (const double spacing : volume.spacing_um) told.add_spacing_um(spacing);
    told.set_sealed_monotonic_ns(SealedNs(volume));
    told.set_skipped(std::exchange(skipped_, 0));
    ++all_->told_;
    (void)link_->Send(
        std::move(message),
        answer->descriptor);  // if this fails, the connection ends, and with it all its exports
    return true;
  }
  void GiveBackLocked(std::map<std::string, volume::VolumeHold>::iterator it)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_) {
    // The export ends before the loan: a volume that the ring gives up for a newer one must free
    // its slot.
    const volume::VolumeHold loan = std::move(it->second);
    const std::string name = it->first;
    taken_.erase(it);
    (void)all_->context_.exports->End(name);
  }
  int64_t SealedNs(const model::VolumeStatus& volume) const {
    const auto now = all_->context_.volumes->Get(volume.name);
    return all_->context_.clock->Now().monotonic_ns -
           static_cast<int64_t>((now.ok() ? now->held_seconds : volume.held_seconds) * 1e9);
  }

  ExportFeeds* const all_;
  Mutex turn_;  // makes messages wait for each other; taken before the locks of the stores
  ExportPeer peer_ ABSL_GUARDED_BY(turn_);
  handoff::Peer who_ ABSL_GUARDED_BY(turn_);
  std::shared_ptr<handoff::Link> link_ ABSL_GUARDED_BY(turn_);
  size_t most_ ABSL_GUARDED_BY(turn_) = 1;
  bool every_ ABSL_GUARDED_BY(turn_) = false, end_told_ ABSL_GUARDED_BY(turn_) = false;
  int64_t next_index_ ABSL_GUARDED_BY(turn_) = 0;
  int64_t skipped_ ABSL_GUARDED_BY(turn_) = 0;  // since the last message
  std::set<std::string> mapped_
      ABSL_GUARDED_BY(turn_);  // memory whose descriptor the client has received
  /// By export: the loan of its volume, empty for volumes of no ring.
  std::map<std::string, volume::VolumeHold> taken_ ABSL_GUARDED_BY(turn_);
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(turn_);  // volumes, oldest first
};

ExportFeeds::ExportFeeds(Context context) : context_(std::move(context)) {}
ExportFeeds::~ExportFeeds() = default;

absl::StatusOr<handoff::Ticket> ExportFeeds::Issue(const std::string& scan,
                                                   const ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(context_.scans->HasEnded(scan).status());
  return context_.exports->IssueFor(std::make_shared<Feed>(this, scan, peer), peer);
}

std::vector<std::shared_ptr<ExportFeeds::Feed>> ExportFeeds::Open(const std::string& scan) {
  std::vector<std::shared_ptr<Feed>> list;
  if (open_ == 0) return list;
  MutexLock lock(mutex_);
  for (const auto& feed : feeds_) {
    if (scan.empty() || feed->scan_ == scan) list.push_back(feed);
  }
  return list;
}

void ExportFeeds::OnVolumeChanged(const model::VolumeStatus& volume) {
  if (volume.state != model::VolumeState::kHeld || volume.tier != model::Tier::kDevice) return;
  if (open_ == 0 || !Told(volume)) return;
  for (const auto& feed : Open(volume.scan)) feed->Offer(volume);
}

void ExportFeeds::Tick() {
  for (const auto& feed : Open()) {
    const auto ended = context_.scans->HasEnded(feed->scan_);
    if (!ended.ok() || *ended) feed->EndScan();
  }
}

ExportFeeds::Counts ExportFeeds::Count() {
  return {.feeds = open_, .told = told_, .skipped = skipped_};
}

}  // namespace octavo::exports
