// octavo token: the file of tokens that octavod reads (security.tokens). Works on the file, without
// a server.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/terminal.h"
#include "gpu/base/status.h"
#include "server/security/secret_file.h"
#include "server/security/token_file.h"

namespace octavo::cli {
namespace {

constexpr int64_t kDay = 86'400;

int64_t NowSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Fail(Session& session, const absl::Status& status) {
  session.exit_code = kFailed;
  if (session.json) {
    std::cout << nlohmann::json({{"code", static_cast<int>(status.code())},
                                 {"message", std::string(status.message())}})
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cerr << "octavo: " << Printable(std::string(status.message())) << "\n";
  }
}

nlohmann::ordered_json JsonOf(const security::TokenRecord& token) {
  return {{"id", token.id},
          {"name", token.name},
          {"role", std::string(security::Name(token.role))},
          {"project", token.project},
          {"created", security::TimeText(token.created)},
          {"expires", token.expires == 0 ? "" : security::TimeText(token.expires)}};
}

std::string TextOf(const security::TokenRecord& token) {
  return absl::StrCat(token.id, "  ", token.name, "  ", security::Name(token.role),
                      token.project.empty() ? "" : absl::StrCat("  project ", token.project),
                      "  made ", security::TimeText(token.created),
                      token.expires == 0 ? "  never expires"
                      : token.expires > NowSeconds()
                          ? absl::StrCat("  expires ", security::TimeText(token.expires))
                          : "  EXPIRED");
}

struct AddFlags {
  std::string file, name, role, project, expires, secret_file;
  int64_t days = 0;
};

void AddToken(Session& session, const AddFlags& flags) {
  const std::string token = security::MakeToken();
  security::TokenRecord record{.id = *security::IdOfToken(token),
                               .sha256 = security::HashOfToken(token),
                               .name = flags.name,
                               .role = *security::RoleNamed(flags.role),
                               .project = flags.project,
                               .created = NowSeconds()};
  if (flags.days > 0) record.expires = record.created + flags.days * kDay;
  if (!flags.expires.empty()) record.expires = *security::TimeOf(flags.expires);
  // 1970-01-01 is 0, which means never in a record.
  if ((!flags.expires.empty() || record.expires != 0) && record.expires <= record.created) {
    session.exit_code = kUsage;
    std::cerr << "octavo: --expires: is '" << flags.expires
              << "', which is over; allowed is a later time\n";
    return;
  }
  // The secret first: a token that nobody has got would be of no use, and could not be told again.
  if (!flags.secret_file.empty()) {
    if (absl::Status written =
            security::WriteNewSecretFile(flags.secret_file, absl::StrCat(token, "\n"));
        !written.ok())
      return Fail(session, Annotate(written, "--secret-file"));
  }
  const absl::Status added = security::ChangeTokens(
      flags.file, true, [&](std::vector<security::TokenRecord>* tokens) -> absl::Status {
        const bool taken = std::any_of(tokens->begin(), tokens->end(),
                                       [&](const auto& other) { return other.id == record.id; });
        if (taken) return absl::AlreadyExistsError("another token has this id; try again");
        tokens->push_back(record);
        return absl::OkStatus();
      });
  if (!added.ok()) {
    if (!flags.secret_file.empty()) ::unlink(flags.secret_file.c_str());
    return Fail(session, Annotate(added, "--file"));
  }
  if (session.json) {
    auto out = JsonOf(record);
    if (flags.secret_file.empty()) out["token"] = token;
    std::cout << out.dump() << "\n";
    return;
  }
  if (flags.secret_file.empty()) {
    std::cout << token << "\n";
    std::cerr << TextOf(record) << "\nthe token is shown this once; keep it in a file of mode 0600 "
              << "(--token-file, OCTAVO_TOKEN_FILE)\n";
  } else {
    std::cerr << TextOf(record) << "\nthe token is in " << flags.secret_file << "\n";
  }
}

void ListTokens(Session& session, const std::string& file) {
  const auto tokens = security::ListTokens(file);
  if (!tokens.ok()) return Fail(session, Annotate(tokens.status(), "--file"));
  for (const auto& token : *tokens)
    std::cout << (session.json ? JsonOf(token).dump() : TextOf(token)) << "\n";
}

void RevokeTokens(Session& session, const std::string& file, const std::vector<std::string>& ids) {
  std::vector<security::TokenRecord> revoked;
  const absl::Status changed = security::ChangeTokens(
      file, false, [&](std::vector<security::TokenRecord>* tokens) -> absl::Status {
        for (const std::string& id : ids) {
          const auto it = std::find_if(tokens->begin(), tokens->end(),
                                       [&](const auto& token) { return token.id == id; });
          if (it == tokens->end())
            return absl::NotFoundError(absl::StrCat(
                file, ": holds no token with the id '", id,
                "'; octavo token list --file shows those that it holds. Nothing is revoked"));
          revoked.push_back(std::move(*it));
          tokens->erase(it);
        }
        return absl::OkStatus();
      });
  if (!changed.ok()) return Fail(session, Annotate(changed, "--file"));
  for (const auto& token : revoked) {
    if (session.json)
      std::cout << JsonOf(token).dump() << "\n";
    else
      std::cout << "revoked " << TextOf(token) << "\n";
  }
}

CLI::Validator TokenNameCheck() {
  return CLI::Validator(
      [](const std::string& text) {
        return security::IsTokenName(text)
                   ? std::string()
                   : absl::StrCat("is '", text, "'; allowed ", security::kTokenNameRule);
      },
      "NAME");
}

CLI::Validator TimeCheck() {
  return CLI::Validator(
      [](const std::string& text) {
        return security::TimeOf(text).has_value()
                   ? std::string()
                   : absl::StrCat("is '", text,
                                  "'; allowed is a time (UTC), 2027-01-31 or 2027-01-31T12:00:00Z");
      },
      "TIME");
}

CLI::Validator RoleCheck() {
  return CLI::Validator(
      [](const std::string& text) {
        const auto role = security::RoleNamed(text);
        return role.has_value() && *role != security::Role::kNone
                   ? std::string()
                   : absl::StrCat("is '", text, "'; allowed viewer, operator, admin");
      },
      "ROLE");
}

}  // namespace

void AddTokenCommands(CLI::App& app, Session& session) {
  auto* token = app.add_subcommand(
      "token", "tokens by which clients log in: the file that octavod reads (security.tokens)");
  token->require_subcommand(1);
  constexpr char kFile[] = "the file of tokens, of mode 0600";

  auto* add = token->add_subcommand(
      "add",
      "make a token and print it, once; the file keeps only its SHA-256 and is made if needed");
  auto flags = std::make_shared<AddFlags>();
  add->add_option("--file", flags->file, kFile)->required();
  add->add_option("--name", flags->name, "whose it is; logs name it")
      ->required()
      ->check(TokenNameCheck());
  add->add_option("--role", flags->role,
                  "viewer (sees), operator (acquires, processes, discards), admin")
      ->required()
      ->check(RoleCheck());
  add->add_option("--project", flags->project, "group of people who share their objects")
      ->check(TokenNameCheck());
  auto* days = add->add_option("--days", flags->days, "expires after so many days; default never")
                   ->check(CLI::Range(int64_t{1}, int64_t{36500}));
  add->add_option("--expires", flags->expires,
                  "expires then: 2027-01-31, 2027-01-31T12:00:00Z (UTC)")
      ->check(TimeCheck())
      ->excludes(days);
  add->add_option("--secret-file", flags->secret_file,
                  "write the token into this new file, of mode 0600, instead of printing it");
  add->callback([&session, flags] { AddToken(session, *flags); });

  auto* list = token->add_subcommand("list", "the tokens of the file, without their secrets");
  auto list_file = std::make_shared<std::string>();
  list->add_option("--file", *list_file, kFile)->required();
  list->callback([&session, list_file] { ListTokens(session, *list_file); });

  auto* revoke = token->add_subcommand(
      "revoke", "take tokens out of the file; octavod refuses them and ends their calls at once");
  auto revoke_file = std::make_shared<std::string>();
  auto ids = std::make_shared<std::vector<std::string>>();
  revoke->add_option("--file", *revoke_file, kFile)->required();
  revoke->add_option("id", *ids, "ids of the tokens, as octavo token list shows them")->required();
  revoke->callback([&session, revoke_file, ids] { RevokeTokens(session, *revoke_file, *ids); });
}

}  // namespace octavo::cli
