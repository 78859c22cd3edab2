#include "server/security/tls_failures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"

namespace octavo::security {
namespace {

// Between two records of the log: whoever looks for a reason finds it, and the disk does not fill.
constexpr double kBetweenRecords = 10;
constexpr size_t kMostPeers = 8;

}  // namespace

absl::string_view Name(TlsFailure failure) {
  switch (failure) {
    case TlsFailure::kPlainText: return "plain_text";
    case TlsFailure::kNoCertificate: return "no_certificate";
    case TlsFailure::kBadCertificate: return "bad_certificate";
    case TlsFailure::kRefused: return "refused_by_client";
    case TlsFailure::kVersion: return "version";
    case TlsFailure::kOther: break;
  }
  return "other";
}

absl::string_view Words(TlsFailure failure) {
  switch (failure) {
    case TlsFailure::kPlainText:
      return "the client does not speak TLS (it needs --ca-file, OCTAVO_CA_FILE)";
    case TlsFailure::kNoCertificate:
      return "the client gave no certificate (--cert-file, --key-file), and "
             "listen.tls.client_certificates requires one";
    case TlsFailure::kBadCertificate:
      return "the client's certificate is not of an authority in listen.tls.client_ca, has "
             "expired, "
             "or is not for clients";
    case TlsFailure::kRefused: return "the client does not take the server's certificate";
    case TlsFailure::kVersion:
      return "the client speaks no TLS that is allowed (1.2 or later, with usual ciphers)";
    case TlsFailure::kOther: break;
  }
  return "TLS failed otherwise";
}

TlsFailure TlsFailureOf(absl::string_view error) {
  const auto says = [&](std::initializer_list<absl::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](absl::string_view part) { return absl::StrContains(error, part); });
  };
  if (says({"did not return a certificate"})) return TlsFailure::kNoCertificate;
  if (says({"alert"})) return TlsFailure::kRefused;
  if (says({"certificate verify failed"})) return TlsFailure::kBadCertificate;
  if (says({"unsupported protocol", "version too low", "no shared cipher", "no protocols"}))
    return TlsFailure::kVersion;
  if (says({"wrong version number", "http request", "https proxy request", "packet length too long",
            "record layer failure"}))
    return TlsFailure::kPlainText;
  return TlsFailure::kOther;
}

void TlsFailures::Note(TlsFailure failure) {
  MutexLock lock(mutex_);
  ++all_[static_cast<size_t>(failure)];
}

void TlsFailures::NoteLeft(const std::string& peer) {
  MutexLock lock(mutex_);
  if (left_.size() >= kMostPeers) left_.erase(left_.begin());
  left_.push_back(peer);
}

void TlsFailures::LogSome(double now) {
  nlohmann::json why = nlohmann::json::array(), peers;
  {
    MutexLock lock(mutex_);
    if (all_ == logged_) {
      left_.clear();  // nothing failed: they ended as they wanted
      return;
    }
    // The listener notices within 100 ms that a connection has ended.
    if (!std::exchange(pending_, true) || now - last_ < kBetweenRecords) return;
    pending_ = false;
    last_ = now;
    for (size_t i = 0; i < kTlsFailures; ++i) {
      const int64_t count = all_[i] - logged_[i];
      if (count > 0) why.push_back(absl::StrCat(count, " x ", Words(static_cast<TlsFailure>(i))));
    }
    logged_ = all_;
    peers = std::exchange(left_, {});
  }
  Log(LogLevel::kWarning, "connections failed at TLS", {{"why", why}, {"peers", peers}});
}

TlsFailures::Counts TlsFailures::Count() const {
  MutexLock lock(mutex_);
  return all_;
}

}  // namespace octavo::security
