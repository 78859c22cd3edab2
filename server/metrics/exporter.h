#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/engine/engine.h"

namespace octavo::metrics {

/// The Prometheus page: reads Engine::Snapshot() when it is scraped, and only then. Takes no lock that a device call holds.
class Exporter {
 public:
  /// `address` host:port, port 0 = any. FailedPrecondition if it cannot listen.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(const std::string& address, engine::Engine* engine, const std::string& version,
                                                         const std::string& backend);
  virtual ~Exporter() = default;
  /// "127.0.0.1:9464"
  virtual std::string address() const = 0;
};

}  // namespace octavo::metrics
