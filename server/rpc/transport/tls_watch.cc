#include "server/rpc/transport/tls_watch.h"

#include <chrono>

#include "gpu/base/log.h"

namespace octavo::rpc {
namespace {

constexpr std::chrono::milliseconds kBetweenTlsLooks(500);

}  // namespace

TlsWatch::TlsWatch(const Config& config, std::function<void(int64_t)> generation,
                   std::function<int64_t(int64_t)> cut)
    : config_(config), generation_(std::move(generation)), cut_(std::move(cut)) {
  generation_(config_.store->Get().generation);
  thread_.emplace("oct-tls", kBetweenTlsLooks, [this] { Look(); });
}

void TlsWatch::Look() {
  const auto now = Steady::now();
  config_.failures->LogSome(std::chrono::duration<double>(now.time_since_epoch()).count());
  const auto change = config_.store->Look();
  const int64_t generation = config_.store->Get().generation;
  if (change != security::TlsStore::Change::kNone) {
    generation_(generation);
    replaced_.emplace_back(generation,
                           now + std::chrono::duration_cast<Steady::duration>(
                                     std::chrono::duration<double>(config_.old_seconds)));
  }
  int64_t before = 0;
  const char* why = "connections under TLS certificates that were replaced end";
  while (!replaced_.empty() && now >= replaced_.front().second) {
    before = replaced_.front().first;
    replaced_.pop_front();
  }
  if (change == security::TlsStore::Change::kCaWithdrawn) {
    before = generation;
    replaced_.clear();
    why = "an authority of clients was withdrawn: all connections end";
  }
  if (before == 0) return;
  const int64_t ended = cut_(before);
  if (ended > 0) Log(LogLevel::kInfo, why, {{"connections", ended}});
}

}  // namespace octavo::rpc
