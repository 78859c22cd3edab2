#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_maker.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/ledger.h"
#include "server/model/buffer_types.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {

/// Runs programs (chains of operations, and what other calls plan) on buffers and volumes, in the
/// one order of all work. All slow steps (planning, allocating, compiling) come before the turn.
/// Thread-safe.
class OpRunner {
 public:
  OpRunner(BufferTable& table, BufferTurns& turns, StreamOrdering& order, BufferMaker& maker,
           memory::Ledger* ledger, volume::VolumeStore* volumes)
      : table_(table),
        turns_(turns),
        order_(order),
        maker_(maker),
        ledger_(ledger),
        volumes_(volumes) {}

  /// The output, an existing buffer or a new one.
  absl::StatusOr<model::BufferStatus> Run(const model::BufferProgramSpec& spec,
                                          const model::Caller& caller);
  /// The chain of ApplyOp as a program.
  model::BufferProgramSpec ProgramOf(const model::BufferApplySpec& spec) const;

 private:
  struct Operand;
  struct ChargedRun;
  struct Work;
  absl::Status CheckOperand(const BufferEntry& buffer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  /// Their types and devices never change, so all slow work is done before the turn.
  absl::StatusOr<Operand> FindOperand(const std::string& name, const model::Caller& caller);
  absl::Status FindOperands(const model::BufferProgramSpec& spec, const model::Caller& caller,
                            Work* work);
  absl::Status Plan(const model::BufferProgramSpec& spec, Work* work);
  absl::Status FindOutput(const model::BufferProgramSpec& spec, const model::Caller& caller,
                          Work* work);
  /// Decides which devices compute, and prepares their scratch memory.
  absl::Status Prepare(Work* work);
  static absl::Status TakeLeases(const model::BufferProgramSpec& spec, BufferTurn& turn);
  /// The present places of inputs and output: a replica may have moved out of memory that a process
  /// keeps. The devices are the same.
  absl::Status FindAgain(const model::BufferProgramSpec& spec, const model::Caller& caller,
                         Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  absl::Status Enqueue(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  absl::Status EnqueueOn(const std::shared_ptr<BufferReplica>& replica, Work* work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  BufferTable& table_;
  BufferTurns& turns_;
  StreamOrdering& order_;
  BufferMaker& maker_;
  memory::Ledger* const ledger_;
  volume::VolumeStore* const volumes_;
};

}  // namespace octavo::buffer
