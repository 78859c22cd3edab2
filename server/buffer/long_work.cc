#include "server/buffer/long_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/replica_copies.h"

namespace octavo::buffer {
namespace {

using Clock = std::chrono::steady_clock;

// A slice takes about this long: a call that is cancelled waits for one.
constexpr std::chrono::milliseconds kSlice{30};
constexpr std::chrono::milliseconds kLook{10};        // between two questions whether to go on
constexpr std::chrono::microseconds kShortSleep{50};  // while a slice may end any moment
constexpr std::chrono::microseconds kLongSleep{1000};
constexpr int64_t kMostGrowth = 4;

bool IsVolume(const std::string& name) { return absl::StartsWith(name, "volumes/"); }

}  // namespace

/// An input, on the devices where it is.
struct LongWork::Operand {
  ArrayType type;
  struct Place {
    int device = 0;
    const void* data = nullptr;
    std::shared_ptr<BufferReplica> replica;  // null: a volume's
    std::shared_ptr<const void> keep;
    uint64_t version = 0;  // of the replica when the work began
  };
  std::vector<Place> places;
  const Place* On(int device) const {
    for (const Place& place : places) {
      if (place.device == device) return &place;
    }
    return nullptr;
  }
};

/// Device memory of a program as the ledger counts it.
class LongWork::Charge {
 public:
  static absl::StatusOr<std::unique_ptr<Charge>> Make(memory::Ledger* ledger, int device,
                                                      const std::string& called, int64_t bytes) {
    auto out = std::make_unique<Charge>();
    if (bytes <= 0) return out;
    model::AdmissionReport report;
    auto charges = ledger->Reserve(
        device, called, "", {{.kind = model::NeedKind::kOperation, .bytes = bytes, .count = 1}},
        &report);
    if (!charges.ok()) return DoesNotFit(report);
    out->ledger_ = ledger;
    out->id_ = charges->front();
    return out;
  }
  ~Charge() {
    if (ledger_ != nullptr) ledger_->Release(id_);
  }

 private:
  memory::Ledger* ledger_ = nullptr;
  memory::Ledger::ChargeId id_ = 0;
};

LongWork::LongWork(const LongWorkEnvironment& environment, LongWorkSpec spec,
                   const model::Caller& caller)
    : environment_(environment), spec_(std::move(spec)), caller_(caller) {}

LongWork::~LongWork() {
  if (stream_) (void)stream_.ref().Synchronize();  // a device that failed has passed everything
}

absl::StatusOr<LongWork::Operand> LongWork::FindVolume(const LongWorkSpec::Input& input) {
  Operand operand;
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                          environment_.volumes->Hold(input.name, volume::HoldKind::kDevice));
  const std::string* const axes = pinned.status.axes;
  if (!input.any_axes && (axes[0] != "z" || axes[1] != "y" || axes[2] != "x")) {
    return BadField(Reason::kBadShape, input.field,
                    absl::StrCat("is a volume [", axes[0], ", ", axes[1], ", ", axes[2],
                                 "]; allowed [z, y, x]: transpose it into a buffer, or say "
                                 "axes_as_zyx"));
  }
  operand.type = {.scalar = ScalarOf(pinned.status.dtype),
                  .lanes = 1,
                  .dims = {pinned.status.shape, pinned.status.shape + 3}};
  operand.places.push_back({.device = pinned.device,
                            .data = pinned.slot->volume.data(),
                            .replica = nullptr,
                            .keep = pinned.slot});
  return operand;
}

absl::StatusOr<LongWork::Operand> LongWork::Find(const LongWorkSpec::Input& input) {
  if (IsVolume(input.name)) return FindVolume(input);
  Operand operand;
  BufferTable& table = environment_.table;
  MutexLock lock(table.mutex());
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table.Find(input.name, caller_));
  for (size_t i = 0; i < buffer->replicas.size(); ++i) {
    const std::shared_ptr<BufferReplica>& replica = buffer->replicas[i];
    if (replica->version != buffer->replicas[0]->version) {
      return Precondition(Reason::kIncoherent, absl::StrCat("the replicas of ", input.name,
                                                            " differ; use SyncReplicas first"));
    }
    OCTAVO_RETURN_IF_ERROR(table.CheckReadable(*buffer, i, false));
    operand.places.push_back({.device = replica->device,
                              .data = replica->memory.data(),
                              .replica = replica,
                              .keep = replica,
                              .version = replica->version});
  }
  operand.type = buffer->status.type;
  return operand;
}

absl::Status LongWork::TakeLeases() {
  BufferTurn turn(environment_.turns);
  for (auto input = spec_.inputs.begin(); input != spec_.inputs.end(); ++input) {
    const bool again = std::any_of(spec_.inputs.begin(), input,
                                   [&](const auto& one) { return one.name == input->name; });
    if (again || IsVolume(input->name)) continue;
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(input->name, session::LeaseMode::kShared, input->lease_token, 0, spec_.called));
    guards_.push_back(turn.Keep());
  }
  return absl::OkStatus();
}

absl::Status LongWork::ChooseDevice() {
  for (const auto& place : operands_[0].places) {
    device_ = place.device;
    if (std::all_of(operands_.begin(), operands_.end(),
                    [&](const Operand& o) { return o.On(device_) != nullptr; }))
      return absl::OkStatus();
  }
  return BadField(Reason::kBadPlacement, spec_.inputs[0].field,
                  "no device has all arrays that are read; use SyncReplicas or another placement");
}

absl::StatusOr<std::unique_ptr<LongWork>> LongWork::Begin(const LongWorkEnvironment& environment,
                                                          LongWorkSpec spec,
                                                          const model::Caller& caller) {
  std::unique_ptr<LongWork> work(new LongWork(environment, std::move(spec), caller));
  // A buffer that is not there, or not the caller's, is told before a lease is asked for.
  for (const LongWorkSpec::Input& input : work->spec_.inputs)
    OCTAVO_RETURN_IF_ERROR(work->Find(input).status());
  OCTAVO_RETURN_IF_ERROR(work->TakeLeases());
  for (const LongWorkSpec::Input& input : work->spec_.inputs) {
    OCTAVO_ASSIGN_OR_RETURN(Operand operand, work->Find(input));
    work->types_.push_back(operand.type);
    work->operands_.push_back(std::move(operand));
  }
  OCTAVO_RETURN_IF_ERROR(work->ChooseDevice());
  return work;
}

absl::Status LongWork::Check() {
  if (spec_.may_go_on) OCTAVO_RETURN_IF_ERROR(spec_.may_go_on());
  MutexLock lock(environment_.table.mutex());
  for (const session::LeaseTable::Guard& guard : guards_) OCTAVO_RETURN_IF_ERROR(guard.Stands());
  for (const Operand& operand : operands_) {
    const Operand::Place& place = *operand.On(device_);
    if (place.replica == nullptr) continue;
    if (place.replica->state == model::BufferState::kLost) {
      return WithInfo(absl::DataLossError("the memory of the buffer was lost while it was read"),
                      {.reason = Reason::kLost, .field = "name", .numbers = {}});
    }
    if (place.replica->version != place.version) {
      return WithInfo(
          absl::AbortedError("the buffer was written while it was read; do it again"),
          {.reason = Reason::kVersion, .field = "name", .numbers = {{"retryable", "true"}}});
    }
  }
  return absl::OkStatus();
}

absl::Status LongWork::WaitForSlice() {
  OCTAVO_ASSIGN_OR_RETURN(const SharedEvent passed,
                          environment_.order.Mark(device_, stream_.ref()));
  const Clock::time_point begun = Clock::now();
  Clock::time_point looked = begun;
  absl::Status stopped;
  for (;;) {
    OCTAVO_ASSIGN_OR_RETURN(const bool done, passed->Query());
    if (done) return stopped;
    const Clock::time_point now = Clock::now();
    if (stopped.ok() && now - looked >= kLook) {
      looked = now;
      stopped = Check();
      if (!stopped.ok())
        std::atomic_ref<int32_t>(*stop_.as<int32_t>()).store(1, std::memory_order_relaxed);
    }
    std::this_thread::sleep_for(now - begun < std::chrono::milliseconds(2) ? kShortSleep
                                                                           : kLongSleep);
  }
}

absl::Status LongWork::RunSlices(SlicedRun& run, int64_t parts,
                                 const std::vector<const void*>& inputs, void* out) {
  int64_t count = 1;
  for (int64_t first = 0; first < parts;) {
    OCTAVO_RETURN_IF_ERROR(Check());
    const int64_t end = std::min(first + count, parts);
    const Clock::time_point begun = Clock::now();
    OCTAVO_RETURN_IF_ERROR(run.Run(stream_.ref(), first, end, inputs, out));
    OCTAVO_RETURN_IF_ERROR(WaitForSlice());
    // As many parts as should take the time of a slice.
    const double ratio = std::chrono::duration<double>(kSlice) / (Clock::now() - begun);
    const double wanted =
        static_cast<double>(end - first) * std::min(ratio, static_cast<double>(kMostGrowth));
    count = std::max<int64_t>(1, static_cast<int64_t>(wanted));
    first = end;
  }
  // A slice that was written to while it was read has read nothing that is of use.
  return Check();
}

absl::Status LongWork::OpenStream(AccessTracker* written) {
  Device& device = environment_.order.device(device_);
  const bool fresh = !stream_;
  if (fresh) {
    OCTAVO_ASSIGN_OR_RETURN(stop_, device.AllocatePinned(int64_t{sizeof(int32_t)}));
    *stop_.as<int32_t>() = 0;
    OCTAVO_ASSIGN_OR_RETURN(stream_, device.NewStream(StreamPriority::kLow));
  }
  MutexLock lock(environment_.table.mutex());
  for (const Operand& operand : operands_) {
    const Operand::Place& place = *operand.On(device_);
    if (fresh && place.replica != nullptr)
      OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream_.ref(), place.replica->order));
  }
  return written == nullptr ? absl::OkStatus()
                            : StreamOrdering::BeforeWrite(stream_.ref(), *written);
}

absl::Status LongWork::Run(const SlicedProgram& program, const std::vector<size_t>& numbers,
                           void* out, AccessTracker* written) {
  Device& device = environment_.order.device(device_);
  OCTAVO_RETURN_IF_ERROR(OpenStream(written));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch, program.ScratchBytes(device));
  OCTAVO_ASSIGN_OR_RETURN(const auto charge,
                          Charge::Make(environment_.ledger, device_, spec_.called, scratch));
  OCTAVO_ASSIGN_OR_RETURN(const std::unique_ptr<SlicedRun> run,
                          program.Prepare(device, stop_.as<int32_t>()));
  // The memory ends after the work, whatever becomes of it.
  const absl::Cleanup passes = [this] { (void)stream_.ref().Synchronize(); };
  std::vector<const void*> inputs;
  for (const size_t i : numbers) inputs.push_back(operands_[i].On(device_)->data);
  const absl::Status done = RunSlices(*run, program.parts(), inputs, out);
  const absl::Status passed = stream_.ref().Synchronize();
  OCTAVO_RETURN_IF_ERROR(done);
  return passed;
}

absl::StatusOr<std::vector<char>> LongWork::Measure(const SlicedProgram& program,
                                                    const std::vector<size_t>& inputs) {
  std::vector<size_t> numbers = inputs;
  for (size_t i = 0; i < operands_.size() && inputs.empty(); ++i) numbers.push_back(i);
  const int64_t bytes = program.out().bytes();
  Device& device = environment_.order.device(device_);
  OCTAVO_ASSIGN_OR_RETURN(const auto charge,
                          Charge::Make(environment_.ledger, device_, spec_.called, bytes));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer out, device.Allocate(bytes));
  OCTAVO_RETURN_IF_ERROR(Run(program, numbers, out.data(), nullptr));
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer pinned, device.AllocatePinned(bytes));
  const absl::Status enqueued = device.CopyToHost(stream_.ref(), pinned.data(), out.data(), bytes);
  OCTAVO_RETURN_IF_ERROR(stream_.ref().Synchronize());
  OCTAVO_RETURN_IF_ERROR(enqueued);
  {
    MutexLock lock(environment_.table.mutex());
    ++environment_.table.totals().operations;
  }
  return std::vector<char>(pinned.as<char>(), pinned.as<char>() + bytes);
}

absl::StatusOr<model::BufferStatus> LongWork::Make(const SlicedProgram& program) {
  OCTAVO_RETURN_IF_ERROR(environment_.maker.CheckMayHold(device_, spec_.inputs[0].field));
  std::vector<size_t> numbers;
  for (size_t i = 0; i < operands_.size(); ++i) numbers.push_back(i);
  std::vector<int> devices;
  for (const auto& place : operands_[0].places) devices.push_back(place.device);
  BufferTable& table = environment_.table;
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer,
                          environment_.maker.Make(program.out(), devices, caller_, false));
  buffer->status.labels = spec_.labels;
  buffer->ttl_seconds = spec_.ttl_seconds;
  const std::shared_ptr<BufferReplica> made =
      *std::find_if(buffer->replicas.begin(), buffer->replicas.end(),
                    [&](const auto& replica) { return replica->device == device_; });
  OCTAVO_RETURN_IF_ERROR(Run(program, numbers, made->memory.data(), &made->order));

  // The work has passed: the buffer's events begin here.
  MutexLock lock(table.mutex());
  const uint64_t version = NewestVersion(*buffer) + 1;
  std::shared_ptr<BufferReplica> from = made;
  for (const auto& replica : buffer->replicas) {
    if (replica == made) continue;
    OCTAVO_RETURN_IF_ERROR(
        ForwardReplica(table, environment_.order, from, replica, program.out().bytes()));
    from = replica;
  }
  for (const auto& replica : buffer->replicas) {
    replica->version = version;
    replica->state = model::BufferState::kReady;
  }
  buffer->status.origin = spec_.inputs[0].name;
  buffer->status.sequence = table.NextSequence();
  ++table.totals().operations;
  table.Touch(*buffer);
  model::BufferStatus status = table.StatusOf(*buffer);
  table.Insert(buffer);
  return status;
}

}  // namespace octavo::buffer
