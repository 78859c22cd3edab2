#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "gpu/base/mutex.h"

namespace octavo::security {

/// Why a connection did not come about. A client that fails learns nothing of it: the log says it.
enum class TlsFailure : uint8_t {
  kPlainText,       // the client does not speak TLS
  kNoCertificate,   // the client has no certificate, and one is required
  kBadCertificate,  // the client's is of another authority, has expired, or is not for clients
  kRefused,         // the client does not take the server's certificate
  kVersion,         // the client speaks TLS older than 1.2, or no cipher that the server takes
  kOther
};
inline constexpr size_t kTlsFailures = 6;

/// "plain_text", "no_certificate", "bad_certificate", "refused_by_client", "version", "other".
absl::string_view Name(TlsFailure failure);
/// The same in words for people.
absl::string_view Words(TlsFailure failure);
/// By OpenSSL's text for what went wrong.
TlsFailure TlsFailureOf(absl::string_view error);

/// Counts failed connections, and logs them in few records however many there are. Thread-safe.
class TlsFailures {
 public:
  void Note(TlsFailure failure);
  /// A connection that has ended soon after it began, from this address: perhaps one of those that
  /// failed.
  void NoteLeft(const std::string& peer);
  /// Logs what has failed since the last record, if the last record is old enough, and one call
  /// later, when it is known who has left. Call it twice a second or so, with the time in seconds.
  void LogSome(double now);

  using Counts = std::array<int64_t, kTlsFailures>;
  Counts Count() const;

 private:
  mutable Mutex mutex_;
  Counts all_ ABSL_GUARDED_BY(mutex_){}, logged_ ABSL_GUARDED_BY(mutex_){};
  std::vector<std::string> left_ ABSL_GUARDED_BY(mutex_);  // the last ones
  double last_ ABSL_GUARDED_BY(mutex_) = -1e9;
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::security
