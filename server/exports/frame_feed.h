#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/mutex.h"
#include "server/exports/export_store.h"
#include "server/exports/shared_frames.h"
#include "server/handoff/fd_socket.h"
#include "server/memory/quota.h"
#include "server/model/frame.h"

namespace octavo::exports {

/// Whoever sends the frames of a feed. No call waits.
class FrameSender {
 public:
  virtual ~FrameSender() = default;
  /// The client is there: the feed takes frames from now on.
  virtual void Begin() = 0;
  /// A slot is free again.
  virtual void HasRoom() = 0;
  /// The client wants no more. Called once, after all others, unless the feed was not issued.
  virtual void Over() = 0;
};

/// One client's frames, in slots of memory that it maps (PURPOSE_FRAMES).
///
/// A feed is made and issued. It waits for its client (Open), takes frames, and ends with the
/// client(Ended), also if that never came. Only then its sender and what its owner pays for it are
/// given back. End says that no more frames come: free slots have no memory then, and the client
/// may still read the frames that it has.
///
/// A slot is free, or with the sender that fills it, or with the client, from FrameReady to Done.
/// Its memory is made, and made anew, when a frame needs more than it has: a feed of small frames
/// costs little, and its sender need not know their size before. The slot that came back last is
/// taken first: it is in the caches, and the others stay without memory.
///
/// Thread-safe; one thread at a time sends.
class FrameFeed final : public handoff::Grant {
 public:
  /// What the feeds of a server have in common.
  struct Common {
    explicit Common(int64_t memory_bytes) : budget(std::make_shared<FrameBudget>(memory_bytes)) {}
    const std::shared_ptr<FrameBudget> budget;
    std::atomic<int64_t> feeds{0};                   // now
    std::atomic<int> at_once{0};                     // of them, those that may send at once
    std::atomic<int64_t> frames{0}, frame_bytes{0};  // sent since the start
  };
  /// `watch`: what its owner pays for it. Whoever makes it has counted it in `common`; its end
  /// takes it off.
  FrameFeed(uint32_t slots, std::string payer, memory::QuotaCharge watch,
            std::shared_ptr<Common> common);
  ~FrameFeed() override;

  /// Before it is issued.
  void SetSender(std::shared_ptr<FrameSender> sender);
  /// Whether a slot is free.
  bool HasRoom();
  /// Whether Send of so many bytes of data takes little time, so that the thread that publishes the
  /// frame may call it: they are few, a free slot has the memory for them, and this is one of the
  /// first feeds of the server (Common::at_once) to ask.
  bool SendsAtOnce(int64_t bytes);
  /// Copies the frame into a free slot and tells the client. `about`: an octavo.v1.Frame,
  /// serialised. ResourceExhausted (OUT_OF_MEMORY): there is no memory for a frame so large;
  /// FailedPrecondition: no slot is free. OK if the client has gone.
  absl::Status Send(absl::string_view about, const model::Bytes& data);
  /// Tells the client that no more frames come. Idempotent.
  void End(const absl::Status& why);

  handoff::v1::Purpose purpose() const override { return handoff::v1::PURPOSE_FRAMES; }
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer& peer,
                                       const handoff::v1::Present& request,
                                       std::shared_ptr<handoff::Link> link) override;
  absl::StatusOr<handoff::Answer> Message(const handoff::v1::ClientMessage& request) override;
  void Ended(handoff::GrantEnd why) override;

 private:
  struct Slot {
    bool with_client = false;
    // Made and replaced by the sender while it holds the slot, outside the lock.
    std::shared_ptr<SharedFrame> memory;
    uint64_t memory_number = 0;  // FrameReady.memory; 0 = never had any
  };
  // More of them would hold up the thread that publishes; larger frames take longer to copy than a
  // thread needs to wake up.
  static constexpr int kMostAtOnce = 2;
  static constexpr int64_t kMostBytesAtOnce = int64_t{1} << 19, kMostDescriptionBytes = 4096;

  /// Frees the slot that the sender has: nothing was sent.
  void PutBack(uint32_t slot);

  const std::string payer_;
  const std::shared_ptr<Common> common_;
  Mutex mutex_;
  std::shared_ptr<FrameSender> sender_ ABSL_GUARDED_BY(mutex_);  // until Over was called
  std::shared_ptr<handoff::Link> link_ ABSL_GUARDED_BY(mutex_);  // while the client is there
  memory::QuotaCharge watch_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);  // the one that came back last is the last
  uint64_t memories_ ABSL_GUARDED_BY(mutex_) = 0;       // made so far
  bool end_told_ ABSL_GUARDED_BY(mutex_) = false;
  bool at_once_ ABSL_GUARDED_BY(mutex_) = false;  // counted in Common::at_once
};

/// The subscriptions whose frames go by memory. Thread-safe; no call waits.
class FrameFeeds {
 public:
  static constexpr uint32_t kUsualSlots = 4, kMostSlots = 64;
  static constexpr int64_t kMostFeeds = 256;
  /// `memory_bytes`: of all frames together.
  FrameFeeds(ExportStore* exports, memory::QuotaBook* quotas, int64_t memory_bytes)
      : exports_(exports),
        quotas_(quotas),
        common_(std::make_shared<FrameFeed::Common>(memory_bytes)) {}

  /// A feed for a client. `slots`: 0 = kUsualSlots. The errors of ExportStore::Admit;
  /// InvalidArgument (slots), ResourceExhausted (QUOTA; BUSY: there are kMostFeeds).
  absl::StatusOr<std::shared_ptr<FrameFeed>> Make(uint32_t slots, const ExportPeer& peer);
  /// Issues its ticket. After an error its sender is not told that it is over.
  absl::StatusOr<handoff::Ticket> Issue(const std::shared_ptr<FrameFeed>& feed,
                                        const ExportPeer& peer);

  struct Counts {
    int64_t feeds = 0, memory_bytes = 0;  // now
    int64_t frames = 0, frame_bytes = 0;  // sent since the start
  };
  Counts Count() const;

 private:
  ExportStore* const exports_;
  memory::QuotaBook* const quotas_;
  const std::shared_ptr<FrameFeed::Common> common_;
};

}  // namespace octavo::exports
