#include "server/rpc/transport/certificate_cache.h"

#include <utility>

#include "absl/strings/match.h"
#include "grpc/grpc_security_constants.h"

#include "gpu/base/log.h"

namespace octavo::rpc {
namespace {

constexpr size_t kMostKnown = 256;

}  // namespace

std::shared_ptr<const security::ClientCertificate> CertificateCache::Find(
    const grpc::ServerContextBase& context) {
  // The Unix socket has no TLS, and perhaps no context for authentication.
  if (absl::StartsWith(context.peer(), "fd:")) return nullptr;
  const auto auth = context.auth_context();
  if (auth == nullptr) return nullptr;
  const auto texts = auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (texts.empty()) return nullptr;
  std::string text(texts[0].data(), texts[0].size());
  {
    MutexLock lock(mutex_);
    if (const auto it = known_.find(text); it != known_.end()) return it->second;
  }
  auto read = security::ReadClientCertificate(text);
  // TLS has read it before, so this does not happen; if it does, the client is refused, as with one
  // that has expired.
  if (!read.ok()) {
    Log(LogLevel::kError, "a client's certificate cannot be read",
        {{"error", std::string(read.status().message())}});
    return std::make_shared<const security::ClientCertificate>();
  }
  auto found = std::make_shared<const security::ClientCertificate>(*std::move(read));
  MutexLock lock(mutex_);
  if (known_.size() >= kMostKnown) known_.clear();
  known_.emplace(std::move(text), found);
  return found;
}

}  // namespace octavo::rpc
