#include "server/buffer/op_runner.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/replica_copies.h"

namespace octavo::buffer {
namespace {

bool IsVolume(const std::string& name) { return absl::StartsWith(name, "volumes/"); }

}  // namespace

/// An array that an operation reads, on the devices where it is.
struct OpRunner::Operand {
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
  void LieAt(const std::vector<std::shared_ptr<BufferReplica>>& replicas);
};

void OpRunner::Operand::LieAt(const std::vector<std::shared_ptr<BufferReplica>>& replicas) {
  places.clear();
  for (const auto& r : replicas)
    places.push_back({.device = r->device, .data = r->memory.data(), .replica = r, .keep = r});
}

/// A program's run on one device with its scratch memory, and its charge.
struct OpRunner::ChargedRun {
  ~ChargedRun() {
    run = nullptr;
    if (ledger != nullptr) ledger->Release(charge);
  }
  memory::Ledger* ledger = nullptr;
  memory::Ledger::ChargeId charge = 0;
  std::unique_ptr<ArrayProgramRun> run;
};

/// One call, on its way to the devices.
struct OpRunner::Work {
  std::vector<Operand> operands;  // of each input
  std::unique_ptr<const ArrayProgram> program;
  BufferPtr output;
  // Each device of the output that has all inputs computes. The others get the result from there.
  std::vector<std::shared_ptr<BufferReplica>> compute, forward;
  std::map<int, std::shared_ptr<ChargedRun>> runs;  // by device
  // Replicas that have moved since the work was planned: dropped after the turn, because the last
  // reference frees device memory.
  std::vector<std::shared_ptr<const void>> moved;
};

absl::Status OpRunner::CheckOperand(const BufferEntry& buffer) const {
  for (size_t i = 0; i < buffer.replicas.size(); ++i) {
    if (buffer.replicas[i]->version != buffer.replicas[0]->version) {
      return Precondition(Reason::kIncoherent, absl::StrCat("the replicas of ", buffer.status.name,
                                                            " differ; use SyncReplicas first"));
    }
    OCTAVO_RETURN_IF_ERROR(table_.CheckReadable(buffer, i, false));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpRunner::Operand> OpRunner::FindOperand(const std::string& name,
                                                        const model::Caller& caller) {
  Operand operand;
  if (IsVolume(name)) {
    OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                            volumes_->Hold(name, volume::HoldKind::kDevice));
    operand.type = {.scalar = ScalarOf(pinned.status.dtype),
                    .lanes = 1,
                    .dims = {pinned.status.shape, pinned.status.shape + 3}};
    operand.places.push_back({.device = pinned.device,
                              .data = pinned.slot->volume.data(),
                              .replica = nullptr,
                              .keep = pinned.slot});
    return operand;
  }
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table_.Find(name, caller));
  OCTAVO_RETURN_IF_ERROR(CheckOperand(*buffer));
  operand.type = buffer->status.type;
  operand.LieAt(buffer->replicas);
  return operand;
}

absl::Status OpRunner::FindOperands(const model::BufferProgramSpec& spec,
                                    const model::Caller& caller, Work* work) {
  for (const model::BufferProgramSpec::Input& input : spec.inputs) {
    OCTAVO_ASSIGN_OR_RETURN(Operand operand, FindOperand(input.name, caller));
    work->operands.push_back(std::move(operand));
  }
  return absl::OkStatus();
}

absl::Status OpRunner::Plan(const model::BufferProgramSpec& spec, Work* work) {
  std::vector<ArrayType> types;
  for (const Operand& operand : work->operands) types.push_back(operand.type);
  OCTAVO_ASSIGN_OR_RETURN(work->program, spec.plan(types));
  return absl::OkStatus();
}

model::BufferProgramSpec OpRunner::ProgramOf(const model::BufferApplySpec& spec) const {
  model::BufferProgramSpec out{.inputs = {{spec.input, spec.input_lease_token}},
                               .plan = nullptr,
                               .called = "ApplyOp",
                               .output = spec.output,
                               .labels = spec.labels,
                               .ttl_seconds = spec.ttl_seconds,
                               .request_id = spec.request_id,
                               .request_digest = spec.request_digest,
                               .output_lease_token = spec.output_lease_token};
  for (const std::string& other : spec.others) out.inputs.push_back({other, ""});
  if (spec.output == spec.input && out.output_lease_token.empty())
    out.output_lease_token = spec.input_lease_token;
  // A second array that is written to must be read before: a chain that ends with a copy does so.
  const bool aliased = !spec.output.empty() &&
                       std::any_of(out.inputs.begin(), out.inputs.end(),
                                   [&](const auto& input) { return input.name == spec.output; });
  out.plan = [operations = spec.operations, aliased,
              most = maker_.limits().most_elements * 4](const std::vector<ArrayType>& types)
      -> absl::StatusOr<std::unique_ptr<const ArrayProgram>> {
    OCTAVO_ASSIGN_OR_RETURN(
        ArrayChain chain, PlanChain(operations, types[0], {types.begin() + 1, types.end()}, aliased,
                                    "operations", most));
    return octavo::ProgramOf(std::move(chain));
  };
  return out;
}

absl::Status OpRunner::FindOutput(const model::BufferProgramSpec& spec, const model::Caller& caller,
                                  Work* work) {
  for (const Operand& operand : work->operands) {
    for (const Operand::Place& place : operand.places)
      OCTAVO_RETURN_IF_ERROR(maker_.CheckMayHold(place.device, "input"));
  }
  const ArrayType& made = work->program->out();
  if (spec.output.empty()) {
    std::vector<int> devices;
    for (const auto& place : work->operands[0].places) devices.push_back(place.device);
    OCTAVO_ASSIGN_OR_RETURN(work->output, maker_.Make(made, devices, caller, false));
    work->output->status.labels = spec.labels;
    work->output->ttl_seconds = spec.ttl_seconds;
    return absl::OkStatus();
  }
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(work->output, table_.FindToChange(spec.output, caller));
  OCTAVO_RETURN_IF_ERROR(BufferTable::CheckWritable(*work->output, "output"));
  const ArrayType& type = work->output->status.type;
  const bool same_elements = type.scalar == made.scalar && type.lanes == made.lanes;
  if (!same_elements || type.dims != made.dims) {
    return BadField(same_elements ? Reason::kShapeMismatch : Reason::kTypeMismatch, "output",
                    absl::StrCat("is ", type.Text(), "; the operations make ", made.Text()));
  }
  return absl::OkStatus();
}

absl::Status OpRunner::Prepare(Work* work) {
  {
    MutexLock lock(table_.mutex());  // a replica of an existing output may move at this moment
    for (const auto& replica : work->output->replicas) {
      const bool here =
          std::all_of(work->operands.begin(), work->operands.end(),
                      [&](const Operand& o) { return o.On(replica->device) != nullptr; });
      (here ? work->compute : work->forward).push_back(replica);
    }
  }
  if (work->compute.empty()) {
    return BadField(Reason::kBadPlacement, "output",
                    "has no replica on a device that has all that is read; use SyncReplicas or "
                    "another placement");
  }
  for (const auto& replica : work->compute) {
    Device& device = order_.device(replica->device);
    auto run = std::make_shared<ChargedRun>();
    OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch, work->program->ScratchBytes(device));
    if (scratch > 0) {
      model::AdmissionReport report;
      auto charges = ledger_->Reserve(
          replica->device, HolderOf(work->output->status), "",
          {{.kind = model::NeedKind::kOperation, .bytes = scratch, .count = 1}}, &report);
      if (!charges.ok()) return DoesNotFit(report);
      run->ledger = ledger_;
      run->charge = charges->front();
    }
    OCTAVO_ASSIGN_OR_RETURN(run->run, work->program->Prepare(device));
    work->runs[replica->device] = std::move(run);
  }
  return absl::OkStatus();
}

absl::Status OpRunner::TakeLeases(const model::BufferProgramSpec& spec, BufferTurn& turn) {
  for (auto input = spec.inputs.begin(); input != spec.inputs.end(); ++input) {
    const bool again = input->name == spec.output ||
                       std::any_of(spec.inputs.begin(), input,
                                   [&](const auto& one) { return one.name == input->name; });
    if (again || IsVolume(input->name)) continue;
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(input->name, session::LeaseMode::kShared, input->lease_token, 0, spec.called));
  }
  if (spec.output.empty()) return absl::OkStatus();
  return turn.Enter(spec.output, session::LeaseMode::kExclusive, spec.output_lease_token, 0,
                    spec.called);
}

absl::Status OpRunner::FindAgain(const model::BufferProgramSpec& spec, const model::Caller& caller,
                                 Work* work) {
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (IsVolume(spec.inputs[i].name)) continue;
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table_.Find(spec.inputs[i].name, caller));
    OCTAVO_RETURN_IF_ERROR(CheckOperand(*buffer));
    for (const Operand::Place& place : work->operands[i].places) work->moved.push_back(place.keep);
    work->operands[i].LieAt(buffer->replicas);
  }
  const auto& present = work->output->replicas;
  for (auto* replicas : {&work->compute, &work->forward}) {
    for (auto& replica : *replicas) {
      work->moved.push_back(replica);
      replica = *std::find_if(present.begin(), present.end(),
                              [&](const auto& now) { return now->device == replica->device; });
    }
  }
  if (spec.output.empty()) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(table_.Find(spec.output, caller).status());
  if (IsBeingWritten(*work->output))
    return Precondition(Reason::kPartial, absl::StrCat(spec.output, " is being written"));
  return absl::OkStatus();
}

absl::Status OpRunner::EnqueueOn(const std::shared_ptr<BufferReplica>& replica, Work* work) {
  const auto& run = work->runs[replica->device];
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica->device));
  std::vector<const void*> inputs;
  std::vector<AccessTracker*> read;
  std::vector<std::shared_ptr<const void>> keep = {replica, run};
  for (const Operand& operand : work->operands) {
    const auto& place = *operand.On(replica->device);
    inputs.push_back(place.data);
    keep.push_back(place.keep);
    if (place.replica == nullptr) continue;
    OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream, place.replica->order));
    if (place.replica != replica) read.push_back(&place.replica->order);
  }
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeWrite(stream, replica->order));
  const absl::Status enqueued = run->run->Run(stream, inputs, replica->memory.data());
  // Enqueued work uses the memory, so it is kept even if a later step failed.
  const absl::Status ended = order_.End(replica->device, stream, read, {&replica->order},
                                        std::move(keep), table_.LostUnlessOk(replica));
  OCTAVO_RETURN_IF_ERROR(enqueued);
  return ended;
}

absl::Status OpRunner::Enqueue(Work* work) {
  const auto& replicas = work->output->replicas;
  const uint64_t version = NewestVersion(*work->output) + 1;
  for (const auto& replica : replicas)
    replica->state = model::BufferState::kPartial;  // unless all of the following works
  for (const auto& replica : work->compute) OCTAVO_RETURN_IF_ERROR(EnqueueOn(replica, work));
  std::shared_ptr<BufferReplica> from = work->compute[0];
  for (const auto& replica : work->forward) {
    OCTAVO_RETURN_IF_ERROR(
        ForwardReplica(table_, order_, from, replica, work->program->out().bytes()));
    from = replica;
  }
  for (const auto& replica : replicas) {
    replica->version = version;
    replica->state = model::BufferState::kReady;
  }
  return absl::OkStatus();
}

absl::StatusOr<model::BufferStatus> OpRunner::Run(const model::BufferProgramSpec& spec,
                                                  const model::Caller& caller) {
  Work work;  // before the turn, so that its references end after the turn
  OCTAVO_RETURN_IF_ERROR(FindOperands(spec, caller, &work));
  OCTAVO_RETURN_IF_ERROR(Plan(spec, &work));
  OCTAVO_RETURN_IF_ERROR(FindOutput(spec, caller, &work));
  OCTAVO_RETURN_IF_ERROR(Prepare(&work));

  // The turn: leases that last only for one turn do not conflict with each other.
  BufferTurn turn(turns_);
  OCTAVO_RETURN_IF_ERROR(TakeLeases(spec, turn));
  MutexLock lock(table_.mutex());
  OCTAVO_RETURN_IF_ERROR(turn.Stands());
  OCTAVO_RETURN_IF_ERROR(FindAgain(spec, caller, &work));
  OCTAVO_RETURN_IF_ERROR(Enqueue(&work));
  work.output->status.origin = spec.inputs[0].name;
  work.output->status.sequence = table_.NextSequence();
  ++table_.totals().operations;
  table_.Touch(*work.output);
  model::BufferStatus status = table_.StatusOf(*work.output);
  if (spec.output.empty()) table_.Insert(work.output);
  return status;
}

}  // namespace octavo::buffer
