#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/security/tls_set.h"
#include "server/security/token_store.h"

namespace octavo::security {

/// The certificates and the key with which the server speaks TLS, from files that may change.
/// Thread-safe.
class TlsStore {
 public:
  using Now = TokenStore::Now;

  /// Reads and checks the files; errors as ReadTlsFiles and CheckTlsTexts.
  static absl::StatusOr<std::unique_ptr<TlsStore>> Open(const TlsFiles& files,
                                                        Now now = TokenStore::SystemSeconds);

  /// The set that new connections use. A new set has a greater generation; the first one has 1.
  struct Current {
    std::shared_ptr<const TlsSet> set;
    int64_t generation = 0;
  };
  Current Get() const;
  bool asks_clients() const { return !files_.client_ca.empty(); }

  enum class Change {
    kNone,
    kNewSet,      // connections of the set before it may go on for a while
    kCaWithdrawn  // an authority of clients is not believed any more
  };
  /// Reads the files again. Files that have changed are looked at once more at the next call, for
  /// whoever replaces a pair replaces one file after the other; if they are then the same, they are
  /// taken over as one set if they are sound. A bad set keeps the old one, is logged and counted,
  /// once; it is judged again each minute, because a certificate may only be too new for this
  /// clock. Warns once a day when certificates expire soon. Call it now and then.
  Change Look();

  /// Why the files as they are now are not used; empty if they are.
  std::string Refused() const;

  struct Counts {
    int64_t not_after = 0;  // of the set in use, seconds since 1970
    int64_t reloads = 0, reload_errors = 0;
  };
  Counts Count() const;

 private:
  TlsStore(TlsFiles files, Now now) : files_(std::move(files)), now_(std::move(now)) {}
  void WarnOfExpiry();
  /// Returns what it was before.
  std::string SetBad(std::string why);

  const TlsFiles files_;
  const Now now_;
  mutable Mutex mutex_;
  Current current_ ABSL_GUARDED_BY(mutex_);
  int64_t reloads_ ABSL_GUARDED_BY(mutex_) = 0, reload_errors_ ABSL_GUARDED_BY(mutex_) = 0;
  // What is wrong with the set judged last; empty = nothing.
  std::string bad_ ABSL_GUARDED_BY(mutex_);
  // Used by Look alone. Texts of the files, or why they could not be read, as judged last, and as
  // seen last.
  std::string judged_, seen_;
  int64_t judged_at_ = 0;  // by now_
  int64_t warned_ = 0;
};

}  // namespace octavo::security
