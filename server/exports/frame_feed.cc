#include "server/exports/frame_feed.h"

#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/security/shares.h"

namespace octavo::exports {
namespace {

namespace wire = handoff::v1;

constexpr int64_t kAlignment = 64;  // of the description behind the data

int64_t OffsetBehind(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

FrameFeed::FrameFeed(uint32_t slots, std::string payer, memory::QuotaCharge watch,
                     std::shared_ptr<Common> common)
    : payer_(std::move(payer)), common_(std::move(common)), watch_(std::move(watch)) {
  slots_.resize(slots);
  for (uint32_t slot = slots; slot > 0; --slot) free_.push_back(slot - 1);
}

FrameFeed::~FrameFeed() { --common_->feeds; }

void FrameFeed::SetSender(std::shared_ptr<FrameSender> sender) {
  MutexLock lock(mutex_);
  sender_ = std::move(sender);
}

bool FrameFeed::HasRoom() {
  MutexLock lock(mutex_);
  return link_ != nullptr && !free_.empty();
}

bool FrameFeed::SendsAtOnce(int64_t bytes) {
  if (bytes > kMostBytesAtOnce) return false;
  MutexLock lock(mutex_);
  if (link_ == nullptr || free_.empty()) return false;
  const auto& memory = slots_[free_.back()].memory;
  if (memory == nullptr || memory->bytes() < OffsetBehind(bytes) + kMostDescriptionBytes)
    return false;
  if (at_once_) return true;
  at_once_ = ++common_->at_once <= kMostAtOnce;
  if (!at_once_) --common_->at_once;
  return at_once_;
}

absl::Status FrameFeed::Send(absl::string_view about, const model::Bytes& data) {
  (void)Failpoint("frame_feed_send");
  const int64_t offset = OffsetBehind(data.size),
                wanted = offset + static_cast<int64_t>(about.size());
  uint32_t number = 0;
  std::shared_ptr<SharedFrame> memory;
  {
    MutexLock lock(mutex_);
    if (link_ == nullptr) return absl::OkStatus();
    if (free_.empty())
      return absl::FailedPreconditionError("the client of the frames has all slots");
    number = free_.back();
    free_.pop_back();
    memory = std::move(slots_[number].memory);
  }
  const bool made = memory == nullptr || memory->bytes() < wanted;
  if (made) {
    memory = nullptr;  // first, so that it counts no more
    auto more = SharedFrame::Make(common_->budget, payer_, wanted);
    if (!more.ok()) {
      PutBack(number);
      return more.status();
    }
    memory = *std::move(more);
  }
  if (data.size > 0) std::memcpy(memory->data(), data.data, static_cast<size_t>(data.size));
  if (!about.empty()) std::memcpy(memory->data() + offset, about.data(), about.size());

  std::shared_ptr<handoff::Link> link;
  wire::ServerMessage message;
  {
    MutexLock lock(mutex_);
    if (link_ == nullptr) return absl::OkStatus();
    Slot& slot = slots_[number];
    if (made) slot.memory_number = ++memories_;
    slot.memory = memory;
    slot.with_client = true;  // before the client can say that it is done
    link = link_;
    wire::FrameReady& ready = *message.mutable_frame_ready();
    ready.set_slot(number);
    ready.set_memory(slot.memory_number);
    ready.set_mapped_bytes(static_cast<uint64_t>(memory->bytes()));
    ready.set_byte_size(static_cast<uint64_t>(data.size));
    ready.set_frame_offset(static_cast<uint64_t>(offset));
    ready.set_frame_bytes(about.size());
  }
  // If this fails, the connection ends, and with it the feed.
  if (link->Send(std::move(message), made ? memory->fd() : -1)) {
    ++common_->frames;
    common_->frame_bytes += data.size;
  }
  if (made) memory->CloseDescriptor();
  return absl::OkStatus();
}

void FrameFeed::PutBack(uint32_t slot) {
  MutexLock lock(mutex_);
  if (link_ == nullptr) return;
  free_.push_back(slot);
}

void FrameFeed::End(const absl::Status& why) {
  std::shared_ptr<handoff::Link> link;
  std::vector<std::shared_ptr<SharedFrame>> unused;
  {
    MutexLock lock(mutex_);
    if (link_ == nullptr || std::exchange(end_told_, true)) return;
    link = link_;
    for (const uint32_t slot : free_) unused.push_back(std::move(slots_[slot].memory));
  }
  wire::ServerMessage message;
  wire::FramesEnded& ended = *message.mutable_frames_ended();
  if (!why.ok()) *ended.mutable_why() = handoff::RefusedOf(why);
  (void)link->Send(std::move(message));
}

absl::StatusOr<handoff::Answer> FrameFeed::Open(const handoff::Peer&, const wire::Present&,
                                                std::shared_ptr<handoff::Link> link) {
  std::shared_ptr<FrameSender> sender;
  handoff::Answer answer;
  {
    MutexLock lock(mutex_);
    link_ = std::move(link);
    sender = sender_;
    answer.message.mutable_frames_opened()->set_slots(static_cast<uint32_t>(slots_.size()));
  }
  sender->Begin();
  return answer;
}

absl::StatusOr<handoff::Answer> FrameFeed::Message(const wire::ClientMessage& request) {
  if (!request.has_done()) {
    return handoff::Refusal(absl::StatusCode::kInvalidArgument, Reason::kProtocol,
                            "a grant of frames takes Done and End");
  }
  const uint32_t number = request.done().slot();
  std::shared_ptr<FrameSender> sender;
  std::shared_ptr<SharedFrame> unused;
  {
    MutexLock lock(mutex_);
    if (number >= slots_.size() || !slots_[number].with_client)
      return InvalidField("slot", absl::StrCat("is ", number, ", where the client has no frame"));
    slots_[number].with_client = false;
    free_.push_back(number);
    if (end_told_) unused = std::move(slots_[number].memory);
    sender = sender_;
  }
  if (sender != nullptr) sender->HasRoom();
  handoff::Answer answer;
  if (request.request() != 0) answer.message.mutable_noted();
  return answer;
}

void FrameFeed::Ended(handoff::GrantEnd) {
  std::shared_ptr<FrameSender> sender;
  std::vector<Slot> slots;
  {
    MutexLock lock(mutex_);
    link_ = nullptr;
    sender = std::move(sender_);
    slots.swap(slots_);
    free_.clear();
    watch_.Release();
    if (std::exchange(at_once_, false)) --common_->at_once;
  }
  slots.clear();  // their memory is free when the sender hears of it
  if (sender != nullptr) sender->Over();
}

absl::StatusOr<std::shared_ptr<FrameFeed>> FrameFeeds::Make(uint32_t slots,
                                                            const ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(exports_->Admit(peer));
  if (slots == 0) slots = kUsualSlots;
  OCTAVO_RETURN_IF_ERROR(InRange("slots", slots, 0, kMostSlots));
  absl::Cleanup none = [this] { --common_->feeds; };
  if (++common_->feeds > kMostFeeds) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat("there are ", kMostFeeds,
                                                  " subscriptions by shared memory; end one, try "
                                                  "again, or use Subscribe")),
        {.reason = Reason::kBusy,
         .field = "",
         .numbers = {{"allowed", absl::StrCat(kMostFeeds)}, {"retryable", "true"}}});
  }
  OCTAVO_ASSIGN_OR_RETURN(
      memory::QuotaCharge watch,
      quotas_->Take(peer.owner, memory::QuotaKind::kWatches, 1, "the subscription"));
  auto feed =
      std::make_shared<FrameFeed>(slots, security::ShareOf(peer.owner), std::move(watch), common_);
  std::move(none).Cancel();  // the feed counts until its end
  return feed;
}

absl::StatusOr<handoff::Ticket> FrameFeeds::Issue(const std::shared_ptr<FrameFeed>& feed,
                                                  const ExportPeer& peer) {
  return exports_->IssueFor(feed, peer);
}

FrameFeeds::Counts FrameFeeds::Count() const {
  return {.feeds = common_->feeds,
          .memory_bytes = common_->budget->used(),
          .frames = common_->frames,
          .frame_bytes = common_->frame_bytes};
}

}  // namespace octavo::exports
