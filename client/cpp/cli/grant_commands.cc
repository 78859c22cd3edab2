#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/time_util.h"

#include "octavo/v1/access.grpc.pb.h"
#include "octavo/v1/system.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

/// The seconds of "90s", "15min", "12h", "7d"; 0 for another text.
double SecondsIn(absl::string_view text) {
  struct Unit {
    absl::string_view name;
    double seconds;
  };
  // No unit ends with another one, so that the order does not matter.
  for (const Unit unit : {Unit{"min", 60}, Unit{"h", 3600}, Unit{"d", 86'400}, Unit{"s", 1}}) {
    absl::string_view number = text;
    double value = 0;
    if (absl::ConsumeSuffix(&number, unit.name) && absl::SimpleAtod(number, &value) && value > 0)
      return value * unit.seconds;
  }
  return 0;
}

CLI::Validator TimeWithUnit() {
  return {[](const std::string& text) {
            const double seconds = SecondsIn(text);
            constexpr double kMost = 365 * 86'400.0;
            if (seconds >= 1 && seconds <= kMost) return std::string();
            return absl::StrCat("is '", text,
                                "'; allowed is a time with its unit (s, min, h, d) from 1s to "
                                "365d, such as 7d");
          },
          ""};
}

/// `before`: words in front of it.
void PrintGrant(Session& session, const v1::Grant& grant, absl::string_view before = "") {
  if (session.json) {
    PrintJson(grant);
    return;
  }
  google::protobuf::Timestamp until = grant.expire_time();
  until.set_nanos(0);
  std::cout << before << grant.name() << "  "
            << (grant.object().empty() ? "everything" : grant.object()) << OwnerText(grant)
            << "  to " << Printable(grant.grantee()) << "  until "
            << google::protobuf::util::TimeUtil::ToString(until) << "\n";
}

/// What the server says of a grant that helps nobody now. The grant is made, whether or not the
/// server can be asked.
void TellDoubts(Session& session, const v1::Grant& grant) {
  v1::GetInfoResponse info;
  if (!v1::SystemService::NewStub(session.channel())
           ->GetInfo(session.Context().get(), {}, &info)
           .ok())
    return;
  for (const std::string& line : info.recovered()) {
    if (absl::StartsWith(line, absl::StrCat(grant.name(), " ")))
      std::cerr << "warning: " << Printable(line) << "\n";
  }
}

void AddCommand(CLI::App* grant, Session& session) {
  auto object = std::make_shared<std::string>(), grantee = std::make_shared<std::string>(),
       time = std::make_shared<std::string>();
  auto all = std::make_shared<bool>(false);
  auto* add = grant->add_subcommand("add", "let another principal change what is yours");
  auto* const one =
      add->add_option("object", *object,
                      "scans/... or jobs/... (with their volumes), volumes/... or buffers/...")
          ->check(GrantableName());
  auto* const everything =
      add->add_flag("--all", *all, "everything that you make, also later, instead of one object");
  everything->excludes(one);
  add->add_option("--to", *grantee, "the other's name, as `octavo info` tells it to the other")
      ->required();
  add->add_option("--for", *time, "until it ends: 90s, 15min, 12h, 7d (default 30d)")
      ->check(TimeWithUnit());
  add->callback([&session, object, grantee, time, all] {
    // Everything is never granted by leaving something out.
    if (object->empty() && !*all) throw CLI::RequiredError("object or --all");
    v1::CreateGrantRequest request;
    request.set_object(*object);
    request.set_grantee(*grantee);
    if (!time->empty()) *request.mutable_ttl() = DurationOf(SecondsIn(*time));
    v1::CreateGrantResponse answer;
    if (Check(session, v1::AccessService::NewStub(session.channel())
                           ->CreateGrant(session.Context().get(), request, &answer))) {
      PrintGrant(session, answer.grant());
      TellDoubts(session, answer.grant());
    }
  });
}

void AddListCommand(CLI::App* grant, Session& session) {
  auto* list = grant->add_subcommand("list", "all grants that have not ended, oldest first");
  const ListFlags flags;
  flags.AddTo(list, "grantee = bob", "expire_time, name");
  list->callback([&session, flags] {
    auto stub = v1::AccessService::NewStub(session.channel());
    flags.EachPage<v1::ListGrantsResponse>(
        session, v1::ListGrantsRequest(), "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListGrants(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.grants()) PrintGrant(session, one);
        });
  });
}

void AddRevokeCommand(CLI::App* grant, Session& session) {
  auto name = std::make_shared<std::string>();
  auto* revoke = grant->add_subcommand("revoke", "take it back, or give up one to you");
  revoke->add_option("name", *name, "grants/... (octavo grant list)")->required();
  revoke->callback([&session, name] {
    v1::RevokeGrantRequest request;
    request.set_name(*name);
    v1::RevokeGrantResponse answer;
    if (Check(session, v1::AccessService::NewStub(session.channel())
                           ->RevokeGrant(session.Context().get(), request, &answer)))
      PrintGrant(session, answer.grant(), "taken back: ");
  });
}

}  // namespace

void AddGrantCommands(CLI::App& app, Session& session) {
  auto* grant =
      app.add_subcommand("grant", "who else may change what is yours")->require_subcommand(1);
  AddCommand(grant, session);
  AddListCommand(grant, session);
  AddRevokeCommand(grant, session);
}

}  // namespace octavo::cli
