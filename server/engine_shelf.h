#pragma once

#include <string>
#include <vector>

#include "server/engine/engine.h"
#include "server/keep_held.h"

namespace octavo::drain {

/// The held volumes of an engine that drains. Spills and commits are operations like those of
/// clients, who may look at them. Nobody's lease or mapping protects a volume from them: without
/// them it would be lost.
class EngineShelf final : public Shelf {
 public:
  struct CommitTo {
    std::string root, format;  // a storage root, the ending of the files
  };
  EngineShelf(engine::Engine* engine, CommitTo to) : engine_(*engine), to_(std::move(to)) {}

  std::vector<model::VolumeStatus> Volumes() override;
  bool Busy() override;
  absl::StatusOr<std::string> Begin(const model::VolumeStatus& volume, Way way) override;
  absl::StatusOr<operation::OperationStatus> Look(const std::string& operation) override;
  void Cancel(const std::string& operation) override;

 private:
  engine::Engine& engine_;
  const CommitTo to_;
};

/// Where a commit at the end writes a volume: <root>/held_at_stop/<scan or job>_<index>.<format>.
/// What is made of other volumes, and raw spectra, have names of their own.
std::string DestinationAtStop(const model::VolumeStatus& volume, const std::string& root,
                              const std::string& format);

}  // namespace octavo::drain
