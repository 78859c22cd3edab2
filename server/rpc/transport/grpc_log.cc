#include "server/rpc/transport/grpc_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpc/support/log.h"

#include "gpu/base/log.h"

namespace octavo::rpc {
namespace {

void ToLog(gpr_log_func_args* said) {
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

}  // namespace octavo::rpc
