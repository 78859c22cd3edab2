#include "server/volume/spiller.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/digest.h"
#include "gpu/device/exportable_memory.h"
#include "gpu/device/host_digest.h"
#include "server/base/exception_to_status.h"
#include "server/memory/stripe_layout.h"
#include "server/model/resolved_scan.h"
#include "server/security/rights.h"
#include "server/volume/spill_metadata.h"

namespace octavo::volume {
namespace {

constexpr int64_t kPiece = 8 << 20;  // a multiple of 8: digests of parts add up
// What mirrors leave of the file system, on which commits and the server's records may lie, too.
constexpr int64_t kLeftByMirrors = int64_t{1} << 30;
// Of one volume, beside its voxels: the footer with a CRC of each MiB.
constexpr int64_t FooterBytes(int64_t bytes) { return bytes / (64 << 10) + (64 << 10); }
// How long a spill waits for a mirroring to give its file up. It takes a piece of the copy; a disk
// that hangs holds up the spill anyway.
constexpr std::chrono::seconds kForMirroring{10};

bool NoRoom(const absl::Status& status) {
  const Reason reason = InfoOf(status).reason;
  return reason == Reason::kSpillQuota || reason == Reason::kDiskFull;
}

absl::Status Changed(const std::string& volume, const std::string& sealed, const std::string& now) {
  return WithInfo(
      absl::DataLossError(absl::StrCat(volume, " changed since it was sealed: its digest was ",
                                       sealed, " and is ", now)),
      {.reason = Reason::kDigest, .field = "", .numbers = {{"sealed", sealed}, {"read", now}}});
}

absl::Status Cancelled() {
  return WithInfo(absl::CancelledError("the move was cancelled; the volume stays where it was"),
                  {.reason = Reason::kCancelled, .field = "", .numbers = {}});
}

}  // namespace

class Spiller::StoringOnDisk final : public Spiller::Storing {
 public:
  StoringOnDisk(std::unique_ptr<SpillTiers::Writer> writer, std::atomic<int>* writers)
      : writers_(*writers), writer_(std::move(writer)) {
    ++writers_;
  }
  ~StoringOnDisk() override { --writers_; }
  absl::Status Append(const void* data, int64_t bytes) override {
    Digest(static_cast<const char*>(data), bytes);
    return writer_->Append(data, bytes);
  }
  absl::StatusOr<std::shared_ptr<const SpilledVolume>> Finish(
      model::VolumeStatus* volume) override {
    volume->digest =
        absl::StrFormat("sum64:%016x", digest_ + DigestBytes(rest_, rest_bytes_, digested_));
    writer_->Describe(*volume);
    return writer_->Finish();
  }

 private:
  // Parts of a digest begin at whole words.
  void Digest(const char* data, int64_t bytes) {
    if (rest_bytes_ > 0) {
      const int64_t more = std::min(8 - rest_bytes_, bytes);
      std::memcpy(rest_ + rest_bytes_, data, static_cast<size_t>(more));
      rest_bytes_ += more;
      data += more;
      bytes -= more;
      if (rest_bytes_ < 8) return;
      digest_ += DigestBytes(rest_, 8, digested_);
      digested_ += 8;
    }
    const int64_t whole = bytes / 8 * 8;
    digest_ += HostDigest(data, whole, digested_);
    digested_ += whole;
    rest_bytes_ = bytes - whole;
    std::memcpy(rest_, data + whole, static_cast<size_t>(rest_bytes_));
  }

  std::atomic<int>& writers_;
  const std::unique_ptr<SpillTiers::Writer> writer_;
  uint64_t digest_ = 0;
  int64_t digested_ = 0, rest_bytes_ = 0;
  char rest_[8] = {};
};

Spiller::Spiller(Context context, int threads)
    : context_(std::move(context)),
      tiers_({.devices = context_.devices,
              .host_bytes = context_.host_bytes,
              .folder = context_.folder,
              .meta_of = context_.meta_of}),
      pool_("oct-spill", threads) {}

Spiller::~Spiller() = default;

absl::Status Spiller::ForEachPiece(
    const VolumeHold& hold, const model::WorkControl& control,
    const std::function<absl::Status(const void*, int64_t offset, int64_t bytes)>& take_piece) {
  const int64_t bytes = hold.status.bytes;
  model::WorkProgress progress{.stage = model::WorkStage::kCopying, .total_bytes = bytes};
  control.Report(progress);
  const auto take = [&](const void* data, int64_t at, int64_t count) -> absl::Status {
    if (control.stop.stop_requested()) return Cancelled();
    OCTAVO_RETURN_IF_ERROR(take_piece(data, at, count));
    progress.done_bytes += count;
    progress.fraction = static_cast<double>(progress.done_bytes) / static_cast<double>(bytes);
    control.Report(progress);
    return absl::OkStatus();
  };
  Device* const device = &context_.devices.device(hold.device);
  const std::shared_ptr<memory::FramePool>& pool = context_.devices.frames(hold.device);
  // One piece is copied from the device while `take` works on the other. If memory is short, one
  // piece suffices. The stream is declared after them, because its end waits for the copies that an
  // early return leaves behind.
  auto piece = pool->Get(std::min(kPiece, bytes));
  OCTAVO_RETURN_IF_ERROR(Annotate(piece.status(), "while moving the volume"));
  auto other = pool->Get(std::min(kPiece, bytes));
  const std::shared_ptr<void> memory[2] = {*std::move(piece),
                                           other.ok() ? *std::move(other) : nullptr};
  if (hold.spilled != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(auto cursor, hold.spilled->Open());
    for (int64_t at = 0; at < bytes; at += kPiece) {
      const int64_t count = std::min(kPiece, bytes - at);
      OCTAVO_RETURN_IF_ERROR(cursor->Read(at, count, memory[0].get()));
      OCTAVO_RETURN_IF_ERROR(take(memory[0].get(), at, count));
    }
    return absl::OkStatus();
  }
  OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
  const auto fetch = [&, device = device](int64_t at, int which) {
    return memory::CopyVolumeBytes(*device, stream.ref(), memory[which].get(), *hold.slot,
                                   hold.status, at, std::min(kPiece, bytes - at));
  };
  const bool two = memory[1] != nullptr;
  OCTAVO_RETURN_IF_ERROR(fetch(0, 0));
  int which = 0;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
    const bool more = at + kPiece < bytes;
    if (more && two) OCTAVO_RETURN_IF_ERROR(fetch(at + kPiece, 1 - which));
    OCTAVO_RETURN_IF_ERROR(take(memory[which].get(), at, std::min(kPiece, bytes - at)));
    if (more && !two) OCTAVO_RETURN_IF_ERROR(fetch(at + kPiece, 0));
    if (two) which = 1 - which;
  }
  return absl::OkStatus();
}

int64_t Spiller::FreeOf(model::Tier tier) {
  const int64_t free = tiers_.FreeOf(tier);
  if (tier != model::Tier::kDisk || draining_ || !CheckTier(tier).ok()) return free;
  return free + context_.volumes->tiers().MirrorBytes();
}

int64_t Spiller::FreeForMirrors() const {
  if (draining_ || !CheckTier(model::Tier::kDisk).ok()) return 0;
  const int64_t room = std::min(tiers_.FreeOf(model::Tier::kDisk),
                                context_.folder->disk_free_bytes() - kLeftByMirrors);
  return std::max<int64_t>(0, room - FooterBytes(std::max<int64_t>(0, room)));
}

void Spiller::EndMirroring(const std::string& volume) {
  MutexLock lock(mutex_);
  const std::shared_ptr<MirrorRun> run = mirror_run_;
  if (run == nullptr || (!volume.empty() && run->volume != volume)) return;
  run->stop.request_stop();
  const auto until = std::chrono::steady_clock::now() + kForMirroring;
  while (mirror_run_ == run) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) return;
    mirror_run_ended_.WaitFor(lock, until - now);
  }
}

absl::StatusOr<Spiller::Writer> Spiller::BeginWriter(model::Tier tier,
                                                     const model::VolumeStatus& volume,
                                                     int device) {
  if (tier != model::Tier::kDisk) return tiers_.Begin(tier, volume, device);
  EndMirroring(volume.name);  // it writes the same file
  auto writer = tiers_.Begin(tier, volume, device);
  if (writer.ok() || draining_ || !NoRoom(writer.status())) return writer;
  // The mirror that is not whole yet goes first.
  EndMirroring("");
  writer = tiers_.Begin(tier, volume, device);
  // Where all of them would not do, none is dropped.
  if (tiers_.DiskBytesOf(volume) > FreeOf(tier)) return writer;
  // Once the daemon drains, each mirror keeps its volume: that may have begun meanwhile.
  while (!writer.ok() && NoRoom(writer.status()) && !draining_ &&
         context_.volumes->tiers().DropNewestMirror()) {
    writer = tiers_.Begin(tier, volume, device);
  }
  return writer;
}

absl::Status Spiller::CopyInto(SpillTiers::Writer& writer, const VolumeHold& hold,
                               const std::shared_ptr<storage::SpillGate>& gate,
                               const model::WorkControl& control) {
  const model::VolumeStatus& volume = hold.status;
  writer.SetGate(gate);
  uint64_t digest = 0;
  const auto append = [&](const void* data, int64_t at, int64_t count) {
    digest += HostDigest(data, count, at);
    return writer.Append(data, count);
  };
  OCTAVO_RETURN_IF_ERROR(ForEachPiece(hold, control, append));
  if (const std::string now = absl::StrFormat("sum64:%016x", digest); now != volume.digest)
    return Changed(volume.name, volume.digest, now);
  return absl::OkStatus();
}

absl::Status Spiller::Mirror(
    VolumeMirroring mirroring,
    const std::function<bool(const std::function<bool()>& stopped)>& wait) {
  const auto run = std::make_shared<MirrorRun>();
  run->volume = mirroring.hold().status.name;
  {
    MutexLock lock(mutex_);
    mirror_run_ = run;
  }
  const absl::Cleanup ended = [&] {
    MutexLock lock(mutex_);
    mirror_run_ = nullptr;
    mirror_run_ended_.NotifyAll();
  };
  const std::shared_ptr<storage::SpillGate> gate = mirroring.gate();
  const auto stopped = [&] { return run->stop.stop_requested() || gate->shut() || draining_; };
  const model::WorkControl control{.stop = run->stop.get_token(),
                                   .report = [&](const model::WorkProgress&) {
                                     if (!wait(stopped) || stopped()) run->stop.request_stop();
                                   }};
  auto made =
      base::ExceptionToStatus([&]() -> absl::StatusOr<std::shared_ptr<const SpilledVolume>> {
        const VolumeHold& hold = mirroring.hold();
        // A spill that came before the run was noted does not wait for it, and has the file.
        if (stopped()) return Cancelled();
        OCTAVO_ASSIGN_OR_RETURN(const Writer writer,
                                tiers_.Begin(model::Tier::kDisk, hold.status, hold.device));
        OCTAVO_RETURN_IF_ERROR(CopyInto(*writer, hold, gate, control));
        mirroring.ReleaseBytes();
        return writer->Finish();
      });
  const absl::Status status = made.status();
  // A copy that nobody wants any more has not failed, whatever became of it.
  const bool unwanted = stopped() || absl::IsCancelled(status);
  const bool mirrored = std::move(mirroring).Finish(std::move(made));
  if (mirrored) return absl::OkStatus();
  if (unwanted || status.ok()) return Cancelled();
  MutexLock lock(mutex_);
  ++mirror_failures_;
  return status;
}

void Spiller::BeginDrain() {
  draining_ = true;
  MutexLock lock(mutex_);
  if (mirror_run_ != nullptr) mirror_run_->stop.request_stop();
}

absl::StatusOr<std::unique_ptr<Spiller::Storing>> Spiller::BeginStoring(
    const model::VolumeStatus& volume) {
  OCTAVO_RETURN_IF_ERROR(CheckTier(model::Tier::kDisk));
  OCTAVO_ASSIGN_OR_RETURN(auto writer, BeginWriter(model::Tier::kDisk, volume, 0));
  return std::make_unique<StoringOnDisk>(std::move(writer), &on_callers_);
}

absl::Status Spiller::Post(VolumeMove move, std::function<void(VolumeMove)> work) {
  std::shared_ptr<VolumeMove> shared;  // tasks of the pool can be copied, moves cannot
  const absl::Status posted = base::ExceptionToStatus([&] {
    shared = std::make_shared<VolumeMove>(std::move(move));
    pool_.Post([shared, work = std::move(work)] { work(std::move(*shared)); });
    return absl::OkStatus();
  });
  if (!posted.ok() && shared != nullptr) (void)std::move(*shared).Finish(posted);
  return posted;
}

absl::StatusOr<VolumeBytes> Spiller::CopyOut(const VolumeMove& move, model::Tier tier,
                                             Writer writer, const model::WorkControl& control) {
  const VolumeHold& hold = move.hold();
  if (tier == model::Tier::kDisk && move.mirror() != nullptr) {
    // It was written a while ago, and the bytes are given up for it.
    const absl::Status there = move.mirror()->Open().status();
    if (there.ok()) return VolumeBytes{.slot = nullptr, .spilled = move.mirror()};
    Log(LogLevel::kWarning, "a mirror cannot be opened; its volume is written anew",
        {{"volume", hold.status.name}, {"error", std::string(there.message())}});
    move.mirror()->Remove();
  }
  const int64_t begun = context_.clock->Now().monotonic_ns;
  const auto copy =
      base::ExceptionToStatus([&]() -> absl::StatusOr<std::shared_ptr<const SpilledVolume>> {
        if (writer == nullptr) {
          OCTAVO_ASSIGN_OR_RETURN(writer, BeginWriter(tier, hold.status, hold.device));
        }
        OCTAVO_RETURN_IF_ERROR(CopyInto(*writer, hold, move.gate(), control));
        return writer->Finish();
      });
  // As a client wanted, who cancelled the move or discarded the volume: no failure.
  if (absl::IsCancelled(copy.status())) return copy.status();
  MutexLock lock(mutex_);
  model::TierUse& totals = totals_[tier];
  if (!copy.ok()) {
    ++totals.failures;
    // Nothing would ever drop the counts of jobs, or of scans of an earlier process.
    if (absl::StartsWith(hold.status.scan, "scans/") && !hold.status.recovered)
      ++failures_[hold.status.scan];
    return copy.status();
  }
  totals.spilled_bytes += hold.status.bytes;
  spill_seconds_[tier].Add(static_cast<double>(context_.clock->Now().monotonic_ns - begun) * 1e-9);
  return VolumeBytes{.slot = nullptr, .spilled = *copy};
}

absl::Status Spiller::RunSpill(VolumeMove move, model::Tier tier, Writer writer,
                               const model::WorkControl& control) {
  const std::string name = move.hold().status.name, scan = move.hold().status.scan;
  const int64_t bytes = move.hold().status.bytes;
  auto made = CopyOut(move, tier, std::move(writer), control);
  absl::Status status = made.status();
  (void)std::move(move).Finish(std::move(made));
  if (status.ok()) {
    Log(LogLevel::kDebug, "volume spilled",
        {{"volume", name}, {"tier", Name(tier)}, {"bytes", bytes}});
  } else {
    // A tier that is full says so once a volume: one line for a scan is enough.
    Log(FailuresOf(scan) > 1 || absl::IsCancelled(status) ? LogLevel::kDebug : LogLevel::kWarning,
        "volume not spilled; it stays where it is",
        {{"volume", name}, {"tier", Name(tier)}, {"error", std::string(status.message())}});
  }
  return status;
}

bool Spiller::Request(const std::string& scan, model::Tier tier) {
  if (!CheckTier(tier).ok()) return false;
  {
    MutexLock lock(mutex_);
    if (!pending_.insert(scan).second) return true;
  }
  const auto end = [this](const std::string& of) {
    MutexLock lock(mutex_);
    pending_.erase(of);
  };
  absl::Cleanup over = [&] { end(scan); };
  auto move = context_.volumes->tiers().BeginSpillOldest(scan);
  if (!move.ok()) return false;
  const absl::Status posted = Post(*std::move(move), [this, scan, tier, end](VolumeMove spill) {
    const absl::Cleanup spilled = [&] { end(scan); };
    (void)RunSpill(std::move(spill), tier, nullptr, {});
  });
  if (!posted.ok()) return false;
  std::move(over).Cancel();
  return true;
}

bool Spiller::PendingOf(const std::string& scan) {
  MutexLock lock(mutex_);
  return pending_.count(scan) > 0;
}

int64_t Spiller::FailuresOf(const std::string& scan) {
  MutexLock lock(mutex_);
  const auto it = failures_.find(scan);
  return it == failures_.end() ? 0 : it->second;
}

void Spiller::ForgetScan(const std::string& scan) {
  MutexLock lock(mutex_);
  failures_.erase(scan);
}

absl::Status Spiller::Spill(const std::string& name, model::Tier tier, model::WorkControl control,
                            Done done, const ClientVerb* asked) {
  OCTAVO_RETURN_IF_ERROR(CheckTier(tier));
  OCTAVO_ASSIGN_OR_RETURN(VolumeMove move, context_.volumes->tiers().BeginSpill(name, asked, tier));
  if (!move.under_way()) {
    done(move.hold().status);  // it is there
    return absl::OkStatus();
  }
  return Post(std::move(move), [this, name, tier, control = std::move(control),
                                done = std::move(done)](VolumeMove spill) {
    done(base::ExceptionToStatus([&]() -> absl::StatusOr<model::VolumeStatus> {
      const absl::Status moved = RunSpill(std::move(spill), tier, nullptr, control);
      // Unless it was discarded or committed meanwhile.
      OCTAVO_ASSIGN_OR_RETURN(const VolumeHold spilled,
                              context_.volumes->Hold(name, HoldKind::kMemory));
      OCTAVO_RETURN_IF_ERROR(moved);
      return spilled.status;
    }));
  });
}

absl::Status Spiller::SpillResult(const std::string& name, model::Tier tier) {
  OCTAVO_RETURN_IF_ERROR(CheckTier(tier));
  // As a client's spill would, this one leaves to a process what it maps.
  const ClientVerb asked{.caller = security::ServerItself()};
  OCTAVO_ASSIGN_OR_RETURN(VolumeMove move,
                          context_.volumes->tiers().BeginSpill(name, &asked, tier));
  if (!move.under_way()) return absl::OkStatus();  // it was made there
  auto begun = base::ExceptionToStatus(
      [&] { return BeginWriter(tier, move.hold().status, move.hold().device); });
  if (!begun.ok()) {
    {
      MutexLock lock(mutex_);
      ++totals_[tier].failures;
    }
    (void)std::move(move).Finish(begun.status());
    return begun.status();
  }
  const auto writer = std::make_shared<Writer>(*std::move(begun));
  return Post(std::move(move), [this, tier, writer](VolumeMove spill) {
    (void)RunSpill(std::move(spill), tier, std::move(*writer), {});
  });
}

absl::StatusOr<VolumeBytes> Spiller::CopyToDevice(const VolumeHold& hold,
                                                  const model::WorkControl& control, Why why) {
  const model::VolumeStatus& volume = hold.status;
  Device* const device = &context_.devices.device(hold.device);
  const int64_t volume_bytes = ClientMemory::Bytes(AlignedBytes(volume.bytes));
  OCTAVO_ASSIGN_OR_RETURN(
      const auto charges,
      context_.ledger->Reserve(hold.device, volume.scan, volume.title,
                               {{.kind = model::NeedKind::kRestoredVolume,
                                 .bytes = volume_bytes + kMemoryAlignment,
                                 .count = 1}},
                               nullptr, why == Why::kRestored ? volume.owner : security::Owner{}));
  memory::ChargeHolder held(context_.ledger,
                            charges);  // before the slot: its memory is freed first
  if (why == Why::kRelocated) context_.ledger->SetPayer(charges, volume.owner);
  const auto pool = std::make_shared<memory::SlotPool>(context_.ledger);
  auto slot = std::make_unique<memory::VolumeSlot>();
  slot->charge = charges[0];
  absl::Status moved = base::ExceptionToStatus([&, device = device]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(*device, volume_bytes));
    OCTAVO_ASSIGN_OR_RETURN(slot->digest, device->Allocate(kMemoryAlignment));
    OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer word, device->AllocatePinned(8));
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
    auto* to = slot->volume.as<uint8_t>();
    const auto put = [&, device = device](const void* data, int64_t at,
                                          int64_t count) -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(device->CopyToDevice(stream.ref(), to + at, data, count));
      return stream.ref().Synchronize();
    };
    OCTAVO_RETURN_IF_ERROR(ForEachPiece(hold, control, put));
    OCTAVO_RETURN_IF_ERROR(
        device->Fill(stream.ref(), to + volume.bytes, volume_bytes - volume.bytes, 0));
    OCTAVO_RETURN_IF_ERROR(device->Digest(stream.ref(),
                                          slot->volume.span<const uint8_t>().First(volume.bytes),
                                          slot->digest.span<uint64_t>()));
    OCTAVO_RETURN_IF_ERROR(device->CopyToHost(stream.ref(), word.data(), slot->digest.data(), 8));
    OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
    const std::string now = absl::StrFormat("sum64:%016x", *word.as<uint64_t>());
    return now == volume.digest ? absl::OkStatus() : Changed(volume.name, volume.digest, now);
  });
  OCTAVO_RETURN_IF_ERROR(moved);
  pool->Add(std::move(slot));
  (void)held.Keep();  // the slot's charge ends with the slot
  std::shared_ptr<memory::VolumeSlot> taken = pool->TryTake();
  pool->Close();
  return VolumeBytes{.slot = std::move(taken), .spilled = nullptr};
}

void Spiller::Relocate(const std::string& name, std::function<void(const absl::Status&)> done) {
  auto move = context_.volumes->tiers().BeginRelocate(name);
  if (!move.ok()) return done(move.status());
  const absl::Status posted = Post(*std::move(move), [this, name, done](VolumeMove relocation) {
    auto made = base::ExceptionToStatus(
        [&] { return CopyToDevice(relocation.hold(), {}, Why::kRelocated); });
    absl::Status status = made.status();
    if (!std::move(relocation).Finish(std::move(made)) && status.ok())
      status = absl::NotFoundError(absl::StrCat(name, " has left memory"));
    done(status);
  });
  if (!posted.ok()) done(posted);
}

absl::StatusOr<model::VolumeStatus> Spiller::RestoreNow(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(VolumeMove move, context_.volumes->tiers().BeginRestore(name));
  if (!move.under_way()) return move.hold().status;  // it is there
  ++on_callers_;
  const absl::Cleanup done = [this] { --on_callers_; };
  return RunRestore(std::move(move), {});
}

absl::StatusOr<model::VolumeStatus> Spiller::RunRestore(VolumeMove move,
                                                        const model::WorkControl& control) {
  const VolumeHold& hold = move.hold();
  const std::string name = hold.status.name;
  const model::Tier tier = hold.spilled->tier();
  const int64_t bytes = hold.status.bytes;
  const int64_t begun = context_.clock->Now().monotonic_ns;
  auto made = base::ExceptionToStatus([&]() -> absl::StatusOr<VolumeBytes> {
    auto copy = CopyToDevice(hold, control);
    const auto& origin = hold.status.origin;
    const Reason reason = InfoOf(copy.status()).reason;
    if ((reason == Reason::kDeviceFull || reason == Reason::kQuota) && origin != nullptr &&
        model::Spills(origin->spec.retention.on_full)) {
      // Its client allowed the scan to move volumes to make room, so the oldest volume of the same
      // scan is moved instead.
      auto other = context_.volumes->tiers().BeginSpillOldest(hold.status.scan);
      if (other.ok() &&
          RunSpill(*std::move(other), model::TierOf(origin->spec.retention.on_full), nullptr, {})
              .ok())
        return CopyToDevice(hold, control);
    }
    return copy;
  });
  const absl::Status status = made.status();
  (void)std::move(move).Finish(std::move(made));
  if (!status.ok()) {
    // Unless it has left meanwhile, and its file with it.
    OCTAVO_RETURN_IF_ERROR(context_.volumes->Hold(name, HoldKind::kMemory).status());
    return Annotate(status, absl::StrCat("while restoring ", name));
  }
  {
    MutexLock lock(mutex_);
    totals_[tier].restored_bytes += bytes;
    restore_seconds_[tier].Add(static_cast<double>(context_.clock->Now().monotonic_ns - begun) *
                               1e-9);
  }
  return context_.volumes->Get(name);
}

absl::Status Spiller::Restore(const std::string& name, model::WorkControl control, Done done,
                              const ClientVerb* asked) {
  OCTAVO_ASSIGN_OR_RETURN(VolumeMove move, context_.volumes->tiers().BeginRestore(name, asked));
  if (!move.under_way()) {
    done(move.hold().status);  // it is there
    return absl::OkStatus();
  }
  return Post(std::move(move), [this, control = std::move(control),
                                done = std::move(done)](VolumeMove restore) {
    done(base::ExceptionToStatus([&] { return RunRestore(std::move(restore), control); }));
  });
}

std::vector<std::string> Spiller::Recover(std::vector<storage::SpillFolder::Found> found) {
  std::vector<std::string> report;
  std::vector<std::pair<model::VolumeStatus, storage::SpillFolder::Found*>> volumes;
  for (auto& one : found) {
    auto status = StatusOfFile(one);
    if (!status.ok()) {
      report.push_back(absl::StrCat(one.file->path(), ": does not say what volume it is (",
                                    status.status().message(), "); stays as it is"));
      continue;
    }
    volumes.emplace_back(*std::move(status), &one);
  }
  // Lists and mirrors go by age, and the files have random names.
  std::stable_sort(volumes.begin(), volumes.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.held_unix_ns, a.first.index) <
           std::tie(b.first.held_unix_ns, b.first.index);
  });
  for (auto& [status, one] : volumes) {
    report.push_back(absl::StrCat(one->file->path(), ": held again as ", status.name));
    status.recovered = true;
    if (one->note != storage::SpillNote::kNone) {
      status.marked = one->note == storage::SpillNote::kMarked;
      status.expires_seconds = 0;  // its time to live began anew after the file was written
    }
    context_.volumes->AddStored(status, SpillTiers::Adopt(std::move(one->file)));
  }
  return report;
}

std::vector<model::TierUse> Spiller::Uses() {
  std::vector<model::TierUse> uses;
  VolumeStore::Counts volumes = context_.volumes->Count();
  MutexLock lock(mutex_);
  for (const model::Tier tier : {model::Tier::kHost, model::Tier::kDisk}) {
    model::TierUse use = tiers_.UseOf(tier);
    const model::TierUse& totals = totals_[tier];
    use.spilled_bytes = totals.spilled_bytes;
    use.restored_bytes = totals.restored_bytes;
    use.failures = totals.failures;
    use.volumes = volumes.by_tier[Name(tier)];
    if (tier == model::Tier::kDisk) {
      use.mirrors = volumes.mirrors;
      use.mirror_bytes = volumes.mirror_bytes;
      use.unmirrored = volumes.unmirrored;
      use.unmirrored_bytes = volumes.unmirrored_bytes;
    }
    uses.push_back(std::move(use));
  }
  return uses;
}

void Spiller::AddTo(model::Stats* stats) {
  stats->tiers = Uses();
  stats->mirror_room_bytes = FreeForMirrors();
  stats->mark_failures = context_.volumes->tiers().mark_failures();
  MutexLock lock(mutex_);
  stats->mirror_failures = mirror_failures_;
  for (const auto& [tier, histogram] : spill_seconds_)
    stats->spill_seconds[Name(tier)].Merge(histogram);
  for (const auto& [tier, histogram] : restore_seconds_)
    stats->restore_seconds[Name(tier)].Merge(histogram);
}

}  // namespace octavo::volume
