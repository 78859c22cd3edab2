#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/buffer/buffer_reader.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/long_reader.h"
#include "server/buffer/replica_copies.h"
#include "server/model/buffer_types.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {

/// Opens reads of buffers and of volumes for clients, and cuts off the slow ones. Must outlive its
/// readers. Thread-safe.
class BufferReads {
 public:
  BufferReads(ReadEnvironment environment, BufferTurns& turns, volume::VolumeStore* volumes)
      : environment_(std::move(environment)), turns_(turns), volumes_(volumes) {}

  absl::StatusOr<std::shared_ptr<BufferReader>> Open(const model::BufferReadSpec& spec,
                                                     const model::Caller& caller);
  /// Cuts off readers that take nothing.
  void CutSlow(int64_t now_ns);
  /// The memory of the replica is to be freed: cuts off its readers. May wait for their present
  /// copy.
  void LetGo(const BufferReplica& replica);

 private:
  struct Opening;
  std::vector<std::shared_ptr<LongReader>> LongReaders();
  absl::Status FindVolume(const model::BufferReadSpec& spec, Opening* opening);
  absl::Status FindBuffer(const model::BufferReadSpec& spec, const model::Caller& caller,
                          BufferTurn& turn, Opening* opening);
  absl::StatusOr<std::vector<uint32_t>> ReplicasToRead(const BufferEntry& buffer,
                                                       const model::BufferReadSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(environment_.table.mutex());
  /// Enqueues the whole read.
  absl::StatusOr<std::shared_ptr<BufferReader>> Stage(const Opening& opening, const BoxWalk& walk,
                                                      int64_t bytes);

  const ReadEnvironment environment_;
  BufferTurns& turns_;
  volume::VolumeStore* const volumes_;
  Mutex mutex_;
  std::list<std::weak_ptr<LongReader>> long_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::buffer
