// octavo operation: long work of any kind.

#include <iostream>

#include "absl/strings/ascii.h"

#include "octavo/v1/operation.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

void PrintOperation(const Session& session, const v1::Operation& operation) {
  if (session.json) {
    PrintJson(operation);
    return;
  }
  const v1::OperationProgress& progress = operation.progress();
  std::cout << operation.name() << "  " << absl::AsciiStrToLower(ShortName(operation.kind()))
            << " of " << operation.target() << "  " << ShortName(operation.state());
  if (!operation.done()) {
    std::cout << "  " << absl::AsciiStrToLower(ShortName(progress.stage())) << " "
              << static_cast<int>(100 * progress.fraction()) << " %";
  }
  std::cout << "  " << Seconds(SecondsOf(progress.elapsed())) << OwnerText(operation);
  if (operation.earlier_run()) std::cout << "  of an earlier run";
  for (const std::string& volume : operation.volumes()) std::cout << "  " << volume;
  if (operation.has_commit()) std::cout << "  " << operation.commit().path();
  if (operation.has_error()) std::cout << "  (" << Printable(operation.error().message()) << ")";
  std::cout << "\n";
}

template <class Response, class Request, class Call>
void Ask(Session& session, const std::string& name, Call call) {
  Request request;
  request.set_name(name);
  Response answer;
  if (Check(session, (v1::OperationService::NewStub(session.channel()).get()->*call)(
                         session.Context().get(), request, &answer)))
    PrintOperation(session, answer.operation());
}

}  // namespace

void AddOperationCommands(CLI::App& app, Session& session) {
  auto* operation =
      app.add_subcommand("operation",
                         "long work that was begun: commits, moves, derived volumes, jobs")
          ->require_subcommand(1);
  auto name = std::make_shared<std::string>();
  const auto of_one = [&](const char* verb, const char* help) {
    auto* command = operation->add_subcommand(verb, help);
    command->add_option("operation", *name, "operations/...")->required()->check(OperationName());
    return command;
  };

  auto* list = operation->add_subcommand("list", "operations, newest first");
  auto open = std::make_shared<bool>(false);
  list->add_flag("--open", *open, "only those that have not ended");
  const ListFlags list_flags;
  list_flags.AddTo(list, "kind = COMMIT AND state = FAILED");
  list->callback([&session, open, list_flags] {
    auto stub = v1::OperationService::NewStub(session.channel());
    list_flags.EachPage<v1::ListOperationsResponse>(
        session, v1::ListOperationsRequest(), *open ? "done = false" : "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListOperations(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.operations()) PrintOperation(session, one);
        });
  });

  of_one("get", "one operation")->callback([&session, name] {
    Ask<v1::GetOperationResponse, v1::GetOperationRequest>(
        session, *name, &v1::OperationService::Stub::GetOperation);
  });
  of_one("cancel", "end it; what it works on stays as it was")->callback([&session, name] {
    Ask<v1::CancelOperationResponse, v1::CancelOperationRequest>(
        session, *name, &v1::OperationService::Stub::CancelOperation);
  });
  // An interrupt ends the waiting only.
  of_one("wait", "follow it to its end")->callback([&session, name] {
    v1::GetOperationRequest request;
    request.set_name(*name);
    v1::GetOperationResponse answer;
    if (!Check(session, v1::OperationService::NewStub(session.channel())
                            ->GetOperation(session.Context().get(), request, &answer)))
      return;
    const auto ended = FollowOperation(session, answer.operation(),
                                       absl::AsciiStrToLower(ShortName(answer.operation().kind())));
    if (ended.has_value() && !session.json) PrintOperation(session, *ended);
  });
}

}  // namespace octavo::cli
