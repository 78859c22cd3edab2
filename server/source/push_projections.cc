#include "server/source/push_projections.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/source/projection_ring.h"

namespace octavo::source {
namespace {

using storage::FrameKind;
constexpr int64_t kMostFrames = 1'000'000, kMostMissing = 256;
constexpr int64_t kMostRows = 65535, kMostColumns = 32768;  // as gpu/tomography/preprocess.h
constexpr double kGraceSeconds =
    5;  // s, for a client whose connection broke to reconnect, or for another one to connect

std::string StoredTypeOf(const model::PushedProjectionsSpec& spec) {
  switch (spec.packing) {
    case math::Packing::kNone: break;
    case math::Packing::kLowFirst12: return "u12p";
    case math::Packing::kHighFirst12: return "u12_packed";
  }
  return Info(spec.dtype).name;
}

model::PushedProjectionsSpec WithDefaults(model::PushedProjectionsSpec spec) {
  if (spec.credit_messages == 0) spec.credit_messages = 16;
  if (spec.idle_timeout_s == 0) spec.idle_timeout_s = 60;
  return spec;
}

/// Pixels [first, first + count) of a packed row, as numbers.
void UnpackRow(math::Packing packing, const char* row, int64_t first, int64_t count, char* out) {
  const auto* const in = reinterpret_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < count; ++i) {
    const auto pixel = static_cast<uint16_t>(math::ReadPacked12(packing, in, first + i));
    std::memcpy(out + 2 * i, &pixel, 2);
  }
}

/// The frames that had arrived at one moment. Their contents do not change any more.
class PushedInput final : public storage::ProjectionInput {
 public:
  /// `row_bytes`: of a row in `memory`.
  PushedInput(storage::ProjectionInfo info, int64_t row_bytes, std::vector<int64_t> (&&index)[3],
              std::shared_ptr<char> memory)
      : ProjectionInput(std::move(info)),
        row_bytes_(row_bytes),
        index_{std::move(index[0]), std::move(index[1]), std::move(index[2])},
        memory_(std::move(memory)) {}

 private:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    if (info_.packing == math::Packing::kNone) return Copy(box, out);
    const int64_t bytes = box.columns * SizeOf(info_.dtype);
    auto* to = static_cast<char*>(out);
    for (int64_t f = 0; f < box.frames; ++f) {
      const char* from = RowOf(box, f);
      for (int64_t r = 0; r < box.rows; ++r, from += row_bytes_, to += bytes)
        UnpackRow(info_.packing, from, box.first_column, box.columns, to);
    }
    return absl::OkStatus();
  }
  absl::Status ReadPacked(const storage::ProjectionBox& box, void* out) override {
    return Copy(box, out);
  }

  /// The first row of the box in its frame `f`.
  const char* RowOf(const storage::ProjectionBox& box, int64_t f) const {
    const auto& index = index_[static_cast<size_t>(box.kind)];
    const int64_t frame = index[static_cast<size_t>(box.first_frame + f)];
    return memory_.get() + (frame * info_.rows + box.first_row) * row_bytes_;
  }
  /// As the frames are kept; packed rows as a whole.
  absl::Status Copy(const storage::ProjectionBox& box, void* out) const {
    const int64_t size = SizeOf(info_.dtype);
    const bool whole = box.columns == info_.columns;
    const int64_t pieces = whole ? 1 : box.rows,
                  bytes = whole ? box.rows * row_bytes_ : box.columns * size;
    auto* to = static_cast<char*>(out);
    for (int64_t f = 0; f < box.frames; ++f) {
      const char* from = RowOf(box, f) + (whole ? 0 : box.first_column * size);
      for (int64_t r = 0; r < pieces; ++r, from += row_bytes_, to += bytes)
        std::memcpy(to, from, static_cast<size_t>(bytes));
    }
    return absl::OkStatus();
  }

  const int64_t row_bytes_;
  const std::vector<int64_t> index_[3];
  const std::shared_ptr<char> memory_;
};

absl::Status NoProjections(const std::string& text) {
  return WithInfo(absl::FailedPreconditionError(text),
                  {.reason = Reason::kNoProjections, .field = "push", .numbers = {}});
}

/// Collects frames, in the order of their sequence numbers, into an input.
class FramesBySequence {
 public:
  /// `info`: of an input without frames.
  explicit FramesBySequence(storage::ProjectionInfo info) : info_(std::move(info)) {}
  int64_t projections() const { return std::ssize(index_[0]); }
  void Add(int64_t sequence, FrameKind kind, double angle_rad) {
    const auto before = static_cast<double>(projections());
    if (kind == FrameKind::kProjection) info_.angles_rad.push_back(angle_rad);
    if (kind == FrameKind::kFlat) info_.flat_positions.push_back(before);
    if (kind == FrameKind::kDark) info_.dark_positions.push_back(before);
    index_[static_cast<size_t>(kind)].push_back(sequence);
  }
  void Note(std::string note) { info_.notes.push_back(std::move(note)); }
  /// `memory`: of all frames of the push, in rows of `row_bytes`.
  absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> Input(int64_t row_bytes,
                                                                  std::shared_ptr<char> memory) && {
    if (index_[0].empty()) return NoProjections("no projection has come");
    info_.projections = std::ssize(index_[0]);
    info_.flats = std::ssize(index_[1]);
    info_.darks = std::ssize(index_[2]);
    return std::make_shared<PushedInput>(std::move(info_), row_bytes, std::move(index_),
                                         std::move(memory));
  }

 private:
  storage::ProjectionInfo info_;
  std::vector<int64_t> index_[3];
};

}  // namespace

absl::Status ProjectionPort::Check(const model::PushedProjectionsSpec& spec) {
  const auto range = [](const char* field, int64_t value, int64_t lo, int64_t hi) -> absl::Status {
    if (value >= lo && value <= hi) return absl::OkStatus();
    return FieldOutOfRange(field, value, lo, hi);
  };
  OCTAVO_RETURN_IF_ERROR(range("push.rows", spec.rows, 1, kMostRows));
  OCTAVO_RETURN_IF_ERROR(range("push.columns", spec.columns, 2, kMostColumns));
  OCTAVO_RETURN_IF_ERROR(range("push.frames", spec.frames, 1, kMostFrames));
  OCTAVO_RETURN_IF_ERROR(range("push.credit_messages", spec.credit_messages, 0, 256));
  if (spec.dtype != DType::kU8 && spec.dtype != DType::kU16 && spec.dtype != DType::kI16 &&
      spec.dtype != DType::kF32)
    return FieldNotAllowed("push.dtype", Info(spec.dtype).name, "u8, u16, i16, f32");
  if (spec.packing != math::Packing::kNone && spec.dtype != DType::kU16)
    return FieldNotAllowed("push.dtype", Info(spec.dtype).name, "u16, of packed counts");
  if (!(spec.pixel_size_um >= 0 && spec.pixel_size_um <= 1e6))
    return FieldNotAllowed("push.pixel_size_um", spec.pixel_size_um, "0 (not known) to 1e6");
  if (!(spec.idle_timeout_s <= 1e9) || std::isinf(spec.idle_timeout_s))
    return FieldNotAllowed("push.idle_timeout", spec.idle_timeout_s,
                           "at most 1e9; negative = never");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ProjectionPort>> ProjectionPort::Create(
    const model::PushedProjectionsSpec& given, ProjectionMemory* memory, const Clock* clock,
    std::string payer) {
  OCTAVO_RETURN_IF_ERROR(Check(given));
  const model::PushedProjectionsSpec spec = WithDefaults(given);
  OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<char> taken,
                          memory->Take({.bytes = spec.frames * spec.frame_bytes(),
                                        .payer = payer,
                                        .field = "push.frames",
                                        .what = "the frames need"}));
  return std::shared_ptr<ProjectionPort>(
      new ProjectionPort(spec, std::move(taken), memory, clock, std::move(payer)));
}

ProjectionPort::ProjectionPort(const model::PushedProjectionsSpec& spec,
                               std::shared_ptr<char> memory, ProjectionMemory* budget,
                               const Clock* clock, std::string payer)
    : spec_(spec),
      memory_(std::move(memory)),
      budget_(budget),
      payer_(std::move(payer)),
      clock_(clock),
      frames_(static_cast<size_t>(spec.frames)),
      missing_({{0, spec.frames}}) {}

ProjectionPort::~ProjectionPort() { EndRing(); }

absl::StatusOr<ProjectionPort::Connection*> ProjectionPort::Find(int64_t connection) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return absl::InternalError("the connection is closed");
  return &it->second;
}

int64_t ProjectionPort::Connect(bool by_ring) {
  MutexLock lock(mutex_);
  connections_[++counts_.connections].by_ring = by_ring;
  counts_.connected = true;
  moved_ns_ = clock_->Now().monotonic_ns;
  // A client that connects, again or for the first time, gets time to send; but clients that send
  // nothing do not keep the job waiting.
  if (std::exchange(connect_is_news_, false)) news_ns_ = moved_ns_;
  return counts_.connections;
}

void ProjectionPort::OnProgress(int64_t connection, std::function<void()> notify) {
  MutexLock lock(notify_mutex_);
  notify_[connection] = std::move(notify);
}

absl::Status ProjectionPort::CheckFrame(const PushedFrame& frame) const {
  if (frame.first_row < 0 || frame.first_row >= spec_.rows)
    return FieldOutOfRange("first_row", frame.first_row, 0, spec_.rows - 1);
  if (frame.rows < 1 || frame.rows > spec_.rows - frame.first_row)
    return FieldOutOfRange("rows", frame.rows, 1, spec_.rows - frame.first_row);
  size_t bytes = 0;
  for (const auto& [data, size] : frame.parts) bytes += size;
  if (static_cast<int64_t>(bytes) != frame.rows * spec_.row_bytes())
    return InvalidField("data", absl::StrCat("has ", bytes, " bytes; ", frame.rows, " rows have ",
                                             frame.rows * spec_.row_bytes()));
  if (frame.kind == FrameKind::kProjection && frame.first_row == 0 &&
      !std::isfinite(frame.angle_rad))
    return FieldNotAllowed("angle_rad", frame.angle_rad, "are finite angles");
  return absl::OkStatus();
}

absl::Status ProjectionPort::Offer(int64_t connection, const PushedFrame& frame) {
  OCTAVO_RETURN_IF_ERROR(CheckFrame(frame));
  Frame* place = nullptr;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(Connection * from, Find(connection));
    if (!from->by_ring && from->received >= from->told_credit) {
      return WithInfo(
          absl::ResourceExhaustedError(
              absl::StrCat("message ", from->received + 1, " came without credit for it")),
          {.reason = Reason::kCreditExceeded,
           .field = "",
           .numbers = {{"credit", absl::StrCat(from->told_credit)}, {"retryable", "true"}}});
    }
    ++from->received;
    news_ns_ = clock_->Now().monotonic_ns;
    if (frame.sequence >= static_cast<uint64_t>(spec_.frames) || from->ended || Done()) {
      if (!Done() || frame.sequence >= static_cast<uint64_t>(spec_.frames) ||
          !frames_[frame.sequence].in) {
        ++counts_.out_of_range_frames;
        if (frame.first_row == 0) ++counts_.surplus_frames;
      } else if (frame.first_row == 0) {
        ++counts_.duplicate_frames;
      }
    } else if (Frame& known = frames_[frame.sequence]; known.in) {
      if (frame.first_row == 0) ++counts_.duplicate_frames;
    } else if (known.busy || (frame.first_row != 0 && frame.first_row != known.next_row)) {
      ++counts_.out_of_range_frames;
    } else {
      if (frame.first_row == 0) {
        known.kind = frame.kind;
        known.angle_rad = frame.angle_rad;
      }
      known.busy = true;
      place = &known;
    }
  }
  if (place != nullptr) {
    // No reader uses a frame before it is complete, and no other connection writes it while it is
    // busy.
    char* to = memory_.get() + static_cast<int64_t>(frame.sequence) * spec_.frame_bytes() +
               frame.first_row * spec_.row_bytes();
    for (const auto& [data, size] : frame.parts) {
      std::memcpy(to, data, size);
      to += size;
    }
    MutexLock lock(mutex_);
    place->busy = false;
    place->next_row = frame.first_row + frame.rows;
    if (place->next_row == spec_.rows) {
      place->in = true;
      place->arrived = clock_->Now();
      connect_is_news_ = true;
      ++counts_.frames;
      ++(place->kind == FrameKind::kProjection ? counts_.projections
         : place->kind == FrameKind::kFlat     ? counts_.flats
                                               : counts_.darks);
      Arrived(static_cast<int64_t>(frame.sequence));
    }
    cv_.NotifyAll();
  }
  Notify();
  return absl::OkStatus();
}

// Removes the frame from the runs of missing frames, and counts those before the last one that
// arrived.
void ProjectionPort::Arrived(int64_t sequence) {
  arrivals_.push_back(sequence);
  auto run = std::prev(missing_.upper_bound(sequence));
  const int64_t first = run->first, end = first + run->second;
  missing_.erase(run);
  if (first < sequence) missing_.emplace(first, sequence - first);
  if (sequence + 1 < end) missing_.emplace(sequence + 1, end - sequence - 1);
  last_ = std::max(last_, sequence);
  counts_.missing_frames = last_ + 1 - counts_.frames;
  counts_.gaps = static_cast<int64_t>(missing_.size());
  if (!missing_.empty() && missing_.rbegin()->first > last_) --counts_.gaps;
  for (; whole_ < spec_.frames && frames_[static_cast<size_t>(whole_)].in; ++whole_) {
    if (frames_[static_cast<size_t>(whole_)].kind == FrameKind::kProjection) ++in_order_;
  }
}

double ProjectionPort::EndIfAllSaidSo() {
  if (!anyone_ended_ || ended_) return -1;
  for (const auto& [number, connection] : connections_) {
    if (!connection.ended) return -1;
  }
  const double since_s = static_cast<double>(clock_->Now().monotonic_ns - moved_ns_) * 1e-9;
  if (since_s < kGraceSeconds) return kGraceSeconds - since_s;
  ended_ = true;
  return -1;
}

absl::Status ProjectionPort::EndOfFrames(int64_t connection) {
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(Connection * from, Find(connection));
    from->ended = anyone_ended_ = true;
    moved_ns_ = news_ns_ = clock_->Now().monotonic_ns;
    cv_.NotifyAll();
  }
  Notify();
  return absl::OkStatus();
}

void ProjectionPort::Disconnect(int64_t connection) {
  {
    MutexLock lock(mutex_);
    connections_.erase(connection);
    counts_.connected = !connections_.empty();
    moved_ns_ = clock_->Now().monotonic_ns;
    cv_.NotifyAll();
  }
  MutexLock lock(notify_mutex_);
  notify_.erase(connection);
}

absl::StatusOr<ProjectionPushProgress> ProjectionPort::Progress(int64_t connection) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(Connection * to, Find(connection));
  to->told_credit = std::max(to->told_credit, to->received + spec_.credit_messages);
  ProjectionPushProgress out = TotalsLocked();
  out.credit = to->told_credit;
  out.received = to->received;
  out.done = out.done || to->ended;
  for (const auto& [first, count] : missing_) {
    if (std::ssize(out.missing) == kMostMissing) break;
    out.missing.emplace_back(first, count);
  }
  return out;
}

ProjectionPushProgress ProjectionPort::TotalsLocked() const {
  return {.next_sequence = missing_.empty() ? spec_.frames : missing_.begin()->first,
          .missing = {},
          .done = Done(),
          .counts = counts_};
}

ProjectionPushProgress ProjectionPort::Totals() {
  MutexLock lock(mutex_);
  return TotalsLocked();
}

void ProjectionPort::Fail(absl::Status why) {
  MutexLock lock(mutex_);
  if (Done() || !failed_.ok()) return;
  failed_ = std::move(why);
  cv_.NotifyAll();
}

absl::StatusOr<std::shared_ptr<ProjectionRing>> ProjectionPort::OpenRing(int64_t slots) {
  MutexLock lock(ring_mutex_);
  if (Totals().done) return ProjectionRing::WantsNoMore();
  if (ring_ == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(ring_, ProjectionRing::Open(this, slots, budget_, payer_));
  } else if (slots != 0 && slots != ring_->slots()) {
    return FieldNotAllowed("slots", slots,
                           absl::StrCat("0 or ", ring_->slots(), ", which the job's ring has"));
  }
  return ring_;
}

void ProjectionPort::EndRing() {
  std::shared_ptr<ProjectionRing> ring;
  {
    MutexLock lock(ring_mutex_);
    ring = std::move(ring_);
  }
  if (ring != nullptr) ring->End();
}

absl::StatusOr<ProjectionsSoFar> ProjectionPort::Wait(int64_t seen_frames, double at_most_s,
                                                      std::stop_token stop) {
  using Seconds = std::chrono::duration<double>;
  std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  });
  MutexLock lock(mutex_);
  const auto began = std::chrono::steady_clock::now();
  if (!waited_) {  // frames that arrived before the job began do not affect the timeout
    waited_ = true;
    news_ns_ = clock_->Now().monotonic_ns;
  }
  for (;;) {
    if (stop.stop_requested()) return absl::CancelledError("cancelled");
    if (!failed_.ok() && !Done()) return failed_;
    const double end_in_s = EndIfAllSaidSo();
    if (counts_.frames > seen_frames || Done()) break;
    const double idle_s = static_cast<double>(clock_->Now().monotonic_ns - news_ns_) * 1e-9;
    if (spec_.idle_timeout_s > 0 && idle_s >= spec_.idle_timeout_s && end_in_s < 0) {
      if (anyone_ended_) {  // only a connected but silent client still keeps the push open
        ended_ = true;
        break;
      }
      const char* who = counts_.connections == 0 ? "no client ever connected"
                        : counts_.connected      ? "a client is connected, but silent"
                                                 : "no client is connected";
      return WithInfo(absl::DeadlineExceededError(absl::StrCat(
                          "no projections came for ", spec_.idle_timeout_s, " s (", who, "); ",
                          counts_.frames, " of ", spec_.frames, " frames are in")),
                      {.reason = Reason::kSourceStalled,
                       .field = "push.idle_timeout",
                       .numbers = {{"frames", absl::StrCat(counts_.frames)}}});
    }
    const Seconds left = Seconds(at_most_s) - (std::chrono::steady_clock::now() - began);
    if (left.count() <= 0) break;
    double most = left.count();
    if (spec_.idle_timeout_s > 0 && end_in_s < 0)
      most = std::min(most, std::max(spec_.idle_timeout_s - idle_s, 0.0) + 1e-3);
    if (end_in_s >= 0) most = std::min(most, end_in_s + 1e-3);
    cv_.WaitFor(lock, std::chrono::duration_cast<std::chrono::nanoseconds>(
                          Seconds(std::min(most, 3600.0))));
  }
  return ProjectionsSoFar{.counts = counts_, .in_order = in_order_, .complete = Done()};
}

// The description of an input without any frame.
storage::ProjectionInfo ProjectionPort::InfoOfNone() const {
  storage::ProjectionInfo info{.path = "",
                               .format = "push",
                               .dtype = spec_.dtype,
                               .packing = spec_.packing,
                               .stored_type = StoredTypeOf(spec_),
                               .angles_rad = {}};
  info.rows = spec_.rows;
  info.columns = spec_.columns;
  info.pixel_size_um = spec_.pixel_size_um;
  return info;
}

absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> ProjectionPort::Snapshot() {
  FramesBySequence frames(InfoOfNone());
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < frames_.size(); ++i) {
      const Frame& frame = frames_[i];
      if (frame.in) frames.Add(static_cast<int64_t>(i), frame.kind, frame.angle_rad);
    }
    if (Done() && counts_.frames < spec_.frames) {
      std::string first;
      if (!missing_.empty()) first = absl::StrCat(", the first is ", missing_.begin()->first);
      frames.Note(absl::StrCat(spec_.frames - counts_.frames, " of ", spec_.frames,
                               " frames never came", first));
    }
  }
  return std::move(frames).Input(spec_.row_bytes(), memory_);
}

absl::StatusOr<PushedPart> ProjectionPort::SnapshotOf(int64_t first, int64_t end) {
  FramesBySequence frames(InfoOfNone());
  PushedPart part;
  {
    MutexLock lock(mutex_);
    int64_t before = 0;  // frames, the first of the missing ones
    for (int64_t i = 0; i < spec_.frames && frames.projections() < end; ++i) {
      const Frame& frame = frames_[static_cast<size_t>(i)];
      if (!frame.in) continue;
      const int64_t number = frames.projections();
      frames.Add(i, frame.kind, frame.angle_rad);
      if (frame.kind == FrameKind::kProjection && number >= first) {
        const TimePoint& at = frame.arrived;
        if (number == first || at.monotonic_ns < part.begun.monotonic_ns) part.begun = at;
        if (number == first || at.monotonic_ns > part.ended.monotonic_ns) part.ended = at;
      }
      if (number > first && before < i) part.missing.emplace_back(before, i - before);
      before = i + 1;
    }
  }
  if (frames.projections() < end) {
    return NoProjections(absl::StrCat("only ", frames.projections(), " projections have come, of ",
                                      end, " that are needed"));
  }
  OCTAVO_ASSIGN_OR_RETURN(part.input, std::move(frames).Input(spec_.row_bytes(), memory_));
  return part;
}

void ProjectionPort::WaitsAgain() {
  MutexLock lock(mutex_);
  waited_ = false;
}

std::vector<ArrivedFrame> ProjectionPort::Arrivals(int64_t seen, int64_t most) {
  std::vector<ArrivedFrame> frames;
  MutexLock lock(mutex_);
  const auto end = std::min(std::ssize(arrivals_), seen + most);
  for (int64_t i = seen; i < end; ++i) {
    const int64_t sequence = arrivals_[static_cast<size_t>(i)];
    const Frame& frame = frames_[static_cast<size_t>(sequence)];
    frames.push_back({.kind = frame.kind,
                      .angle_rad = frame.angle_rad,
                      .data = memory_.get() + sequence * spec_.frame_bytes()});
  }
  return frames;
}

std::vector<std::pair<int64_t, int64_t>> ProjectionPort::Missing() {
  MutexLock lock(mutex_);
  return {missing_.begin(), missing_.end()};
}

void ProjectionPort::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    cv_.NotifyAll();
  }
  EndRing();
  Notify();
}

void ProjectionPort::Notify() {
  MutexLock lock(notify_mutex_);
  for (const auto& [connection, notify] : notify_) notify();
}

}  // namespace octavo::source
