#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/engine/engine.h"
#include "server/model/stop_forecast.h"
#include "server/security/certificate_table.h"
#include "server/security/tls_failures.h"
#include "server/security/tls_store.h"
#include "server/security/token_store.h"

namespace octavo::metrics {

/// The objects that the page reports on. All of them must outlive the exporter.
struct PageSource {
  engine::Engine* engine = nullptr;
  std::string version, backend;
  const std::atomic<int64_t>* reloads = nullptr;             // of the configuration; null = 0
  const std::atomic<int64_t>* reload_errors = nullptr;       // failed ones; null = 0
  const security::TokenStore* tokens = nullptr;              // null = none are taken
  const security::TlsStore* tls = nullptr;                   // null = TCP without TLS
  const security::TlsFailures* tls_failures = nullptr;       // null = none
  const security::CertificateTable* certificates = nullptr;  // null = none
  std::map<std::string, int64_t> lost;  // what earlier daemons left without an end, by kind
  /// What a stop would have to write; empty = nothing.
  std::function<model::StopForecast(const model::Stats&)> stop;
};

/// The Prometheus page: reads Engine::Snapshot() when it is scraped, and only then. Takes no lock
/// that a device call holds.
class Exporter {
 public:
  /// `address` host:port, port 0 = any. FailedPrecondition if it cannot listen.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(const std::string& address,
                                                         PageSource source);
  virtual ~Exporter() = default;
  /// "127.0.0.1:9464"
  virtual std::string address() const = 0;
};

}  // namespace octavo::metrics
