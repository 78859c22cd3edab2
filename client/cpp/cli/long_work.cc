#include "client/cpp/cli/long_work.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "octavo/v1/operation.grpc.pb.h"

#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

void Show(const v1::OperationProgress& progress, ProgressBar& bar) {
  const double seconds = SecondsOf(progress.elapsed()), fraction = progress.fraction();
  const double rate = seconds > 0 ? static_cast<double>(progress.done_bytes()) / seconds : 0;
  bar.Update(fraction,
             absl::StrCat(progress.total_bytes() > 0 ? Bytes(rate) + "/s, " : "",
                          absl::AsciiStrToLower(ShortName(progress.stage()))),
             fraction > 0 ? seconds * (1 - fraction) / fraction : 0);
}

}  // namespace

grpc::Status StatusOf(const v1::Operation& operation) {
  const google::rpc::Status& error = operation.error();
  return {static_cast<grpc::StatusCode>(error.code()), error.message(), error.SerializeAsString()};
}

std::optional<v1::Operation> CancelOperation(Session& session, const std::string& name) {
  v1::CancelOperationRequest request;
  request.set_name(name);
  v1::CancelOperationResponse answer;
  if (!Check(session, v1::OperationService::NewStub(session.channel())
                          ->CancelOperation(session.Context().get(), request, &answer)))
    return std::nullopt;
  return answer.operation();
}

std::optional<v1::Operation> FollowOperation(Session& session, const v1::Operation& begun,
                                             const std::string& doing) {
  v1::Operation operation = begun;
  if (session.json) PrintJson(operation);
  if (!operation.done()) {
    v1::WatchOperationRequest request;
    request.set_name(operation.name());
    grpc::ClientContext context;
    const auto reader =
        v1::OperationService::NewStub(session.channel())->WatchOperation(&context, request);
    v1::WatchOperationResponse step;
    {
      ProgressBar bar(doing);
      while (reader->Read(&step)) {
        operation.Swap(step.mutable_operation());
        if (session.json) {
          PrintJson(operation);
        } else {
          Show(operation.progress(), bar);
        }
      }
    }
    if (!Check(session, reader->Finish())) return std::nullopt;
  }
  if (operation.state() == v1::OPERATION_STATE_SUCCEEDED) return operation;
  Check(session, StatusOf(operation));
  return std::nullopt;
}

}  // namespace octavo::cli
