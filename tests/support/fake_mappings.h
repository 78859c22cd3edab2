#pragma once

#include <set>
#include <string>

#include "server/volume/volume_mappings.h"

namespace octavo::testing {

/// Pretends that other processes map the volumes that a test names.
class FakeMappings final : public volume::VolumeMappings {
 public:
  std::set<std::string> names;
  std::set<std::string> Mapped() override { return names; }
  absl::Status CheckFree(const std::string& volume) override {
    return names.count(volume) == 0 ? absl::OkStatus()
                                    : absl::FailedPreconditionError("somebody maps it");
  }
  void Left(const std::string&, memory::Ledger::ChargeId) override {}
};

}  // namespace octavo::testing
