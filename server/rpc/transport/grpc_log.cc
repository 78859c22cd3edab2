#include "server/rpc/transport/grpc_log.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/support/log.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"

namespace octavo::rpc {
namespace {

struct Teller {
  Mutex mutex;
  std::function<void(absl::string_view)> tell ABSL_GUARDED_BY(mutex);
};
Teller& TheTeller() {
  static auto& teller = *new Teller;
  return teller;
}

// Whether it was a message of TLS, which the log must not repeat.
bool IsTold(absl::string_view file, absl::string_view message) {
  if (!absl::EndsWith(file, "ssl_transport_security.cc")) return false;
  Teller& teller = TheTeller();
  MutexLock lock(teller.mutex);
  if (!teller.tell) return false;
  // Others are about connections that do come about: the name that a client asks for, say.
  if (absl::StartsWith(message, "Handshake failed")) teller.tell(message);
  return true;
}

void ToLog(gpr_log_func_args* said) {
  if (IsTold(said->file, said->message)) return;
  const LogLevel level = said->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kError
                         : said->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                   : LogLevel::kDebug;
  const absl::string_view file(said->file);
  Log(level, "grpc",
      {{"text", said->message},
       {"at", absl::StrCat(file.substr(file.rfind('/') + 1), ":", said->line)}});
}

}  // namespace

void LogWhatGrpcSays() { gpr_set_log_function(ToLog); }

void TellTlsFailures(std::function<void(absl::string_view)> teller) {
  MutexLock lock(TheTeller().mutex);
  TheTeller().tell = std::move(teller);
}

}  // namespace octavo::rpc
