// Chained operations on buffers, in the order of the server.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {
namespace {

/// An array that an operation reads, on the devices where it is.
struct Operand {
  ArrayType type;
  struct Place {
    int device = 0;
    const void* data = nullptr;
    std::shared_ptr<BufferReplica> replica;  // null: a volume's
    std::shared_ptr<const void> keep;
  };
  std::vector<Place> places;
  const Place* On(int device) const {
    for (const Place& place : places) {
      if (place.device == device) return &place;
    }
    return nullptr;
  }
};

std::vector<Operand::Place> PlacesOf(const std::vector<std::shared_ptr<BufferReplica>>& replicas) {
  std::vector<Operand::Place> places;
  for (const auto& r : replicas)
    places.push_back({.device = r->device, .data = r->memory.data(), .replica = r, .keep = r});
  return places;
}

/// Scratch memory of a chain on one device, and its charge.
struct ChargedRun {
  ~ChargedRun() {
    run = nullptr;
    if (ledger != nullptr) ledger->Release(charge);
  }
  memory::Ledger* ledger = nullptr;
  memory::Ledger::ChargeId charge = 0;
  std::unique_ptr<ChainRun> run;
};

}  // namespace

absl::StatusOr<model::BufferStatus> BufferStore::ApplyNow(const model::BufferApplySpec& spec,
                                                          const model::Caller& caller) {
  OCTAVO_RETURN_IF_ERROR(CheckTtl(spec.ttl_seconds));
  OCTAVO_ASSIGN_OR_RETURN(const std::string answered,
                          BeginRequest(spec.request_id, spec.request_digest));
  if (!answered.empty()) return Get(answered, caller);
  auto applied = base::ExceptionToStatus([&] { return ApplyOnce(spec, caller); });
  EndRequest(spec.request_id, applied.ok() ? applied->name : "");
  if (applied.ok())
    Tell(spec.output.empty() ? model::BufferEventKind::kCreated : model::BufferEventKind::kChanged,
         *applied, caller.key, "");
  return applied;
}

absl::Status BufferStore::CheckOperand(const Buffer& buffer) const {
  for (size_t i = 0; i < buffer.replicas.size(); ++i) {
    if (buffer.replicas[i]->version != buffer.replicas[0]->version) {
      return Precondition(Reason::kIncoherent, absl::StrCat("the replicas of ", buffer.status.name,
                                                            " differ; use SyncReplicas first"));
    }
    OCTAVO_RETURN_IF_ERROR(CheckReadable(buffer, i, false));
  }
  return absl::OkStatus();
}

absl::StatusOr<model::BufferStatus> BufferStore::ApplyOnce(const model::BufferApplySpec& spec,
                                                           const model::Caller& caller) {
  OCTAVO_RETURN_IF_ERROR(NotDraining());
  const bool in_place = spec.output == spec.input;
  std::vector<std::string> inputs = {spec.input};
  inputs.insert(inputs.end(), spec.others.begin(), spec.others.end());

  // The inputs: their types and devices never change, so all slow work is done before the turn.
  std::vector<Operand> operands;
  for (const std::string& name : inputs) {
    Operand operand;
    if (absl::StartsWith(name, "volumes/")) {
      OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                              context_.volumes->Hold(name, volume::HoldKind::kDevice));
      operand.type = {.scalar = ScalarOf(pinned.status.dtype),
                      .lanes = 1,
                      .dims = {pinned.status.shape, pinned.status.shape + 3}};
      operand.places.push_back({.device = pinned.device,
                                .data = pinned.slot->volume.data(),
                                .replica = nullptr,
                                .keep = pinned.slot});
    } else {
      MutexLock lock(mutex_);
      OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
      OCTAVO_RETURN_IF_ERROR(CheckOperand(*buffer));
      operand.type = buffer->status.type;
      operand.places = PlacesOf(buffer->replicas);
    }
    operands.push_back(std::move(operand));
  }

  std::vector<ArrayType> other_types;
  for (size_t i = 1; i < operands.size(); ++i) other_types.push_back(operands[i].type);
  // A second array that is written to must be read before: a chain that ends with a copy does so.
  const bool aliased = in_place || std::find(spec.others.begin(), spec.others.end(), spec.output) !=
                                       spec.others.end();
  OCTAVO_ASSIGN_OR_RETURN(
      ArrayChain planned,
      PlanChain(spec.operations, operands[0].type, other_types, aliased && !spec.output.empty(),
                "operations", context_.most_elements * 4));
  const auto chain = std::make_shared<const ArrayChain>(std::move(planned));

  BufferPtr output;
  if (spec.output.empty()) {
    std::vector<int> devices;
    for (const auto& place : operands[0].places) devices.push_back(place.device);
    OCTAVO_ASSIGN_OR_RETURN(
        output, Make(chain->out, devices, absl::StrCat("buffers/", base::NewId(context_.server_id)),
                     caller, false));
    output->status.labels = spec.labels;
    output->ttl_seconds = spec.ttl_seconds;
  } else {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(output, FindLocked(spec.output, caller));
    const ArrayType& type = output->status.type;
    if (type.scalar != chain->out.scalar || type.lanes != chain->out.lanes) {
      return BadField(
          Reason::kTypeMismatch, "output",
          absl::StrCat("is ", type.Text(), "; the operations make ", chain->out.Text()));
    }
    if (type.dims != chain->out.dims) {
      return BadField(
          Reason::kShapeMismatch, "output",
          absl::StrCat("is ", type.Text(), "; the operations make ", chain->out.Text()));
    }
  }

  // The devices that compute: each device of the output that has all inputs. The others get the
  // result from there.
  std::vector<std::shared_ptr<BufferReplica>> compute, forward;
  for (const auto& replica : output->replicas) {
    const bool here = std::all_of(operands.begin(), operands.end(), [&](const Operand& o) {
      return o.On(replica->device) != nullptr;
    });
    (here ? compute : forward).push_back(replica);
  }
  if (compute.empty()) {
    return BadField(Reason::kBadPlacement, "output",
                    "has no replica on a device that has all that is read; use SyncReplicas or "
                    "another placement");
  }
  std::map<int, std::shared_ptr<ChargedRun>> runs;
  for (const auto& replica : compute) {
    Device& device = order_.device(replica->device);
    auto run = std::make_shared<ChargedRun>();
    OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch, ScratchBytes(*chain, device));
    if (scratch > 0) {
      model::AdmissionReport report;
      auto charges =
          context_.ledger->Reserve(replica->device, output->status.name, "",
                                   {{.what = "operation", .bytes = scratch, .count = 1}}, &report);
      if (!charges.ok()) return DoesNotFit(report);
      run->ledger = context_.ledger;
      run->charge = charges->front();
    }
    OCTAVO_ASSIGN_OR_RETURN(run->run, ChainRun::Create(chain, device));
    runs[replica->device] = std::move(run);
  }

  // The turn: leases that last only for one turn do not conflict with each other.
  BufferTurn turn(turn_mutex_, context_.leases);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool again = inputs[i] == spec.output ||
                       std::find(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(i),
                                 inputs[i]) != inputs.begin() + static_cast<std::ptrdiff_t>(i);
    if (again || absl::StartsWith(inputs[i], "volumes/")) continue;
    OCTAVO_RETURN_IF_ERROR(turn.Enter(inputs[i], session::LeaseMode::kShared,
                                      i == 0 ? spec.input_lease_token : "", 0, "ApplyOp"));
  }
  if (!spec.output.empty()) {
    const std::string& token = in_place && spec.output_lease_token.empty()
                                   ? spec.input_lease_token
                                   : spec.output_lease_token;
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(spec.output, session::LeaseMode::kExclusive, token, 0, "ApplyOp"));
  }
  MutexLock lock(mutex_);
  OCTAVO_RETURN_IF_ERROR(turn.Stands());
  // The present places of the inputs: a replica may have moved out of memory that a process keeps.
  // The devices are the same.
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (absl::StartsWith(inputs[i], "volumes/")) continue;
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(inputs[i], caller));
    OCTAVO_RETURN_IF_ERROR(CheckOperand(*buffer));
    operands[i].places = PlacesOf(buffer->replicas);
  }
  for (auto* replicas : {&compute, &forward}) {
    for (auto& replica : *replicas) {
      replica = *std::find_if(output->replicas.begin(), output->replicas.end(),
                              [&](const auto& now) { return now->device == replica->device; });
    }
  }
  if (!spec.output.empty()) {
    OCTAVO_RETURN_IF_ERROR(FindLocked(spec.output, caller).status());
    for (const auto& replica : output->replicas) {
      if (replica->state == model::BufferState::kWriting)
        return Precondition(Reason::kPartial, absl::StrCat(spec.output, " is being written"));
    }
  }
  const uint64_t version = NewestOf(*output) + 1;
  for (const auto& replica : output->replicas)
    replica->state = model::BufferState::kPartial;  // unless all of the following works
  for (const auto& replica : compute) {
    const auto& run = runs[replica->device];
    OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica->device));
    std::vector<const void*> others;
    std::vector<AccessTracker*> read;
    std::vector<std::shared_ptr<const void>> keep = {replica, run};
    for (const Operand& operand : operands) {
      const Operand::Place& place = *operand.On(replica->device);
      if (&operand != &operands[0]) others.push_back(place.data);
      keep.push_back(place.keep);
      if (place.replica == nullptr) continue;
      OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream, place.replica->order));
      if (place.replica != replica) read.push_back(&place.replica->order);
    }
    OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeWrite(stream, replica->order));
    const absl::Status enqueued = run->run->Run(stream, operands[0].On(replica->device)->data,
                                                others, replica->memory.data());
    // Enqueued work uses the memory, so it is kept even if a later step failed.
    const absl::Status ended = order_.End(replica->device, stream, read, {&replica->order},
                                          std::move(keep), LostUnlessOk(replica));
    OCTAVO_RETURN_IF_ERROR(enqueued);
    OCTAVO_RETURN_IF_ERROR(ended);
  }
  std::shared_ptr<BufferReplica> from = compute[0];
  for (const auto& replica : forward) {
    OCTAVO_RETURN_IF_ERROR(ForwardLocked(from, replica, chain->out.bytes()));
    from = replica;
  }
  for (const auto& replica : output->replicas) {
    replica->version = version;
    replica->state = model::BufferState::kReady;
  }
  output->status.origin = spec.input;
  output->status.sequence = ++sequence_;
  ++totals_.operations;
  TouchLocked(*output);
  model::BufferStatus status = StatusLocked(*output);
  if (spec.output.empty()) ListLocked(output);
  return status;
}

}  // namespace octavo::buffer
