#include "server/source/projection_ring.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <pthread.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/source/push_projections.h"
#include "server/source/ring_words.h"

namespace octavo::source {
namespace {

using storage::FrameKind;

constexpr int64_t kMostFrameBytes = std::numeric_limits<uint32_t>::max();
// Without a producer nothing happens that does not wake the thread. But one that has gone may still
// map the bell, and undo its ringing.
constexpr std::chrono::hours kNobody(1);
constexpr std::chrono::milliseconds kGone(250);

std::optional<FrameKind> KindOf(uint64_t word) {
  switch (static_cast<RingFrameKind>(word)) {
    case RingFrameKind::kUnspecified:
    case RingFrameKind::kProjection: return FrameKind::kProjection;
    case RingFrameKind::kFlat: return FrameKind::kFlat;
    case RingFrameKind::kDark: return FrameKind::kDark;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<ProjectionRing>> ProjectionRing::Open(ProjectionPort* port,
                                                                     int64_t slots,
                                                                     ProjectionMemory* budget,
                                                                     const std::string& payer) {
  const model::PushedProjectionsSpec& spec = port->spec();
  if (slots != 0 && (slots < 2 || slots > kMostSlots))
    return FieldNotAllowed("slots", slots,
                           absl::StrCat("0 (", kDefaultSlots, "), 2 to ", kMostSlots));
  if (slots == 0) slots = kDefaultSlots;
  const int64_t frame = port->spec().frame_bytes();
  if (frame > kMostFrameBytes)
    return InvalidField("job", absl::StrCat("has frames of ", frame,
                                            " bytes; a slot of a ring has "
                                            "at most ",
                                            kMostFrameBytes));
  const int64_t bytes = RingMemory::TotalBytes(slots, frame);
  OCTAVO_ASSIGN_OR_RETURN(
      std::shared_ptr<void> reserved,
      budget->Reserve({.bytes = bytes,
                       .payer = payer,
                       .field = "slots",
                       .what = absl::StrCat("a ring of ", slots, " frames needs")}));
  auto memory =
      RingMemory::Create({.flags = kRingMayWait | kRingOfJob,
                          .slots = static_cast<uint32_t>(slots),
                          .block_records = 1,
                          .record_bytes = static_cast<uint32_t>(frame),
                          .samples_per_record = static_cast<uint32_t>(spec.rows * spec.columns),
                          .raw_type = RawTypeNumber(spec.dtype, spec.packing),
                          .channels = 1,
                          .total_records = static_cast<uint64_t>(spec.frames),
                          .rows = static_cast<uint32_t>(spec.rows),
                          .columns = static_cast<uint32_t>(spec.columns)});
  if (!memory.ok()) {
    return WithInfo(memory.status(), {.reason = Reason::kHostMemory,
                                      .field = "slots",
                                      .numbers = {{"wanted", absl::StrCat(bytes)}}});
  }
  return std::shared_ptr<ProjectionRing>(new ProjectionRing(
      port, slots, std::make_shared<RingMemory>(*std::move(memory)), std::move(reserved)));
}

ProjectionRing::ProjectionRing(ProjectionPort* port, int64_t slots,
                               std::shared_ptr<RingMemory> memory, std::shared_ptr<void> reserved)
    : port_(*port),
      slots_(slots),
      total_bytes_(memory->bytes()),
      memory_(std::move(memory)),
      reserved_(std::move(reserved)),
      thread_([this] { Run(); }) {}

ProjectionRing::~ProjectionRing() { End(); }

absl::Status ProjectionRing::WantsNoMore() {
  return WithInfo(absl::FailedPreconditionError("the job takes no more frames"),
                  {.reason = Reason::kJobState, .field = "job", .numbers = {}});
}

absl::Status ProjectionRing::CanAttachLocked() {
  if (!open_ || port_.Totals().done) return WantsNoMore();
  if (connected_) {
    return WithInfo(absl::FailedPreconditionError(
                        "a producer is attached to this ring; another one may be when it has gone"),
                    {.reason = Reason::kRingTaken,
                     .field = "job",
                     .numbers = {{"connection", absl::StrCat(attachment_)}}});
  }
  return absl::OkStatus();
}

absl::Status ProjectionRing::CanAttach() {
  DetachGone();
  MutexLock lock(mutex_);
  return CanAttachLocked();
}

absl::StatusOr<AttachableRing::Attachment> ProjectionRing::Attach(Producer producer) {
  DetachGone();
  MutexLock lock(mutex_);
  OCTAVO_RETURN_IF_ERROR(CanAttachLocked());
  if (attachment_ > 0) OCTAVO_RETURN_IF_ERROR(Renew());
  Attachment attached{.connection = attachment_ + 1, .fd = {}};
  OCTAVO_ASSIGN_OR_RETURN(attached.fd, memory_->NewDescriptor());
  ++attachment_;
  client_ = port_.Connect(/*by_ring=*/true);
  connected_ = feeding_ = true;
  producer_ = std::move(producer);
  const ProjectionPushProgress totals = port_.Totals();
  Tell(totals);
  memory_->BeginProducer(attachment_, seen_, totals.next_sequence);
  // Silent once the port's Disconnect has returned.
  port_.OnProgress(client_, [memory = memory_] { memory->WakeServer(); });
  memory_->WakeServer();
  return attached;
}

// The frame that the thread is taking just now is read where it lies; the thread keeps that memory.
absl::Status ProjectionRing::Renew() {
  // First, so that the host need not have room for two.
  if (seen_ == released_) memory_->DropSlots();
  auto made = RingMemory::Create(memory_->facts());
  if (!made.ok()) {
    return WithInfo(Annotate(made.status(), "memory for another producer of this ring"),
                    {.reason = Reason::kHostMemory,
                     .field = "job",
                     .numbers = {{"wanted", absl::StrCat(total_bytes_)}}});
  }
  auto fresh = std::make_shared<RingMemory>(*std::move(made));
  for (const Step& step : steps_) {
    if (step.what == Step::What::kFrame)
      fresh->CopySlot(*memory_, static_cast<int64_t>(step.block % static_cast<uint64_t>(slots_)));
  }
  memory_.swap(fresh);
  fresh->Supersede(attachment_ + 1);
  fresh->WakeServer();  // the thread may sleep by its bell
  if (fresh != taking_) fresh->DropSlots();
  return absl::OkStatus();
}

void ProjectionRing::DetachGone() {
  std::function<bool()> has_gone;
  int64_t connection = 0;
  {
    MutexLock lock(mutex_);
    if (!connected_) return;
    has_gone = producer_.has_gone;
    connection = attachment_;
  }
  if (has_gone()) Detach(connection);
}

void ProjectionRing::Detach(int64_t connection) {
  MutexLock lock(mutex_);
  if (!open_ || !connected_ || connection != attachment_) return;
  Look();
  connected_ = feeding_ = false;
  producer_ = {};
  steps_.push_back({.what = Step::What::kGone, .client = client_, .why = ""});
  memory_->WakeServer();
}

// Accepts the slots published since the last call.
void ProjectionRing::Look() {
  if (!feeding_) return;
  const RingProducerPage& page = *memory_->producer();
  // read before the counter, so that everything published before the end is seen
  const auto state = static_cast<RingProducerState>(Load(page.state));
  const uint64_t published = Load(page.published), fresh = published - seen_;
  const uint64_t room = static_cast<uint64_t>(slots_) - (seen_ - released_);
  if (fresh > room) {
    return Break(absl::StrCat("the ring is broken: the producer published ", published, " frames; ",
                              seen_, " were there before and there was room for ", room));
  }
  while (seen_ != published) {
    if (const std::string why = Accept(seen_); !why.empty()) return Break(why);
  }
  if (state == RingProducerState::kFeeding) return;
  // Whatever else the word says: this producer publishes no more.
  feeding_ = false;
  if (state == RingProducerState::kFailed) {
    steps_.push_back(
        {.what = Step::What::kFail, .client = client_, .why = memory_->ProducersError()});
  } else {
    steps_.push_back({.what = Step::What::kEnd, .client = client_, .why = ""});
  }
}

// Copies what the producer says of a slot, and checks the copy.
std::string ProjectionRing::Accept(uint64_t block) {
  const RingDescriptor& given =
      memory_->descriptor(static_cast<int64_t>(block % static_cast<uint64_t>(slots_)));
  const uint64_t number = Load(given.number), kind = Load(given.kind);
  const uint32_t records = Load(given.records), flags = Load(given.flags);
  Step step{.client = client_, .block = block, .sequence = Load(given.sequence), .why = ""};
  step.angle_rad = std::bit_cast<double>(Load(given.angle_bits));
  if (number != block)
    return absl::StrCat("the ring is broken: frame ", block, " says of itself that it is frame ",
                        number);
  if ((flags & kRingFrame) == 0)
    return "octavo_ring_publish: is for the ring of a scan, and this one is a job's; allowed "
           "octavo_ring_publish_frame";
  if (records != 1)
    return absl::StrCat("records: is ", records, " of frame ", step.sequence,
                        "; allowed 1, a frame");
  const std::optional<FrameKind> known = KindOf(kind);
  if (!known.has_value())
    return absl::StrCat("kind: is ", kind, " of frame ", step.sequence,
                        "; allowed 1 (projection), 2 (flat), 3 (dark)");
  if (*known != FrameKind::kProjection) step.angle_rad = 0;
  if (!std::isfinite(step.angle_rad))
    return absl::StrCat("angle_rad: is ", step.angle_rad, " of frame ", step.sequence,
                        "; allowed are finite angles");
  step.kind = *known;
  steps_.push_back(std::move(step));
  ++seen_;
  return "";
}

// Nothing that this producer writes from now on counts; the frames before do.
void ProjectionRing::Break(const std::string& why) {
  feeding_ = false;
  ++broken_;
  memory_->Refuse(why);
  memory_->WakeProducer();
  cut_now_ = std::exchange(producer_.cut, nullptr);
  news_ = why;
}

void ProjectionRing::CutIfBroken() {
  std::function<void()> cut;
  std::string news;
  {
    MutexLock lock(mutex_);
    cut = std::exchange(cut_now_, nullptr);
    news = std::exchange(news_, "");
  }
  if (!news.empty())
    Log(LogLevel::kWarning, "the producer of a job's ring was cut off", {{"why", news}});
  if (cut) cut();
}

void ProjectionRing::Run() {
  pthread_setname_np(pthread_self(), "oct-frame-ring");
  for (int alarms = 0;;) {
    std::shared_ptr<RingMemory> memory;
    {
      MutexLock lock(mutex_);
      memory = memory_;
    }
    if (memory == nullptr) return;  // End was faster
    const uint32_t bell = Load(memory->producer()->bell);
    std::optional<Step> step;
    std::optional<uint64_t> seen;  // of a producer that is heard
    std::chrono::nanoseconds longest(kNobody);
    {
      MutexLock lock(mutex_);
      if (!open_) return;
      if (memory != memory_) continue;  // another producer has come
      Look();
      if (!steps_.empty()) {
        step = std::move(steps_.front());
        steps_.pop_front();
        if (step->what == Step::What::kFrame) taking_ = memory;
      }
      if (feeding_) seen = seen_;
      if (attachment_ > 0) longest = connected_ ? kLongestRingWait : kGone;
    }
    CutIfBroken();
    if (step.has_value()) {
      Do(*step, *memory);
      alarms = 0;
    }
    TellProducer();
    if (step.has_value()) continue;
    memory->Sleep(bell, seen, longest, &alarms);
  }
}

void ProjectionRing::Do(const Step& step, const RingMemory& memory) {
  switch (step.what) {
    case Step::What::kFrame: {
      const int64_t slot = static_cast<int64_t>(step.block % static_cast<uint64_t>(slots_)),
                    bytes = port_.spec().frame_bytes();
      const char* pixels = memory.data() + RingMemory::DataOffset(slots_) + slot * bytes;
      const absl::Status taken =
          port_.Offer(step.client, {.sequence = step.sequence,
                                    .kind = step.kind,
                                    .angle_rad = step.angle_rad,
                                    .first_row = 0,
                                    .rows = port_.spec().rows,
                                    .parts = {{pixels, static_cast<size_t>(bytes)}}});
      MutexLock lock(mutex_);
      // Of a producer before: nobody reads it any more.
      if (taking_ != memory_ && taking_ != nullptr) taking_->DropSlots();
      taking_ = nullptr;
      released_ = step.block + 1;
      if (!taken.ok() && feeding_ && step.client == client_) Break(std::string(taken.message()));
      return;
    }
    case Step::What::kEnd: (void)port_.EndOfFrames(step.client); return;
    case Step::What::kFail:
      return port_.Fail(
          WithInfo(absl::UnavailableError(absl::StrCat("the producer failed: ", step.why)),
                   {.reason = Reason::kSourceLost, .field = "push", .numbers = {}}));
    case Step::What::kGone: port_.Disconnect(step.client); return;
  }
}

// The server's page; wakes the producer if what it may wait for has changed.
void ProjectionRing::TellProducer() {
  const ProjectionPushProgress totals = port_.Totals();
  MutexLock lock(mutex_);
  if (!open_) return;  // End has said it
  Tell(totals);
  const bool room = std::exchange(told_released_, released_) != released_;
  const bool over = std::exchange(told_done_, totals.done) != totals.done;
  if (room || over) memory_->WakeProducer();
}

void ProjectionRing::Tell(const ProjectionPushProgress& totals) {
  RingServerPage& page = *memory_->server();
  StoreInt(page.next_record, totals.next_sequence);
  StoreInt(page.records, totals.counts.frames);
  StoreInt(page.lost_records, totals.counts.missing_frames);
  StoreInt(page.duplicate_records, totals.counts.duplicate_frames);
  StoreInt(page.out_of_range_records, totals.counts.out_of_range_frames);
  StoreInt(page.broken_blocks, broken_);
  StoreInt(page.state,
           static_cast<int64_t>(totals.done ? RingState::kClosed : RingState::kRunning));
  Store(page.released, released_);
}

void ProjectionRing::End() {
  std::deque<Step> left;
  {
    MutexLock lock(mutex_);
    if (!open_) return;
    open_ = feeding_ = false;
    producer_ = {};
    left = std::move(steps_);
    StoreInt(memory_->server()->state, static_cast<int64_t>(RingState::kClosed));
    memory_->WakeProducer();
    memory_->WakeServer();
  }
  thread_.join();
  for (const Step& step : left) {
    if (step.what == Step::What::kGone) port_.Disconnect(step.client);
  }
  MutexLock lock(mutex_);
  if (std::exchange(connected_, false)) port_.Disconnect(client_);
  memory_ = nullptr;
  reserved_ = nullptr;
}

}  // namespace octavo::source
