#include "server/security/certificate_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/base/toml.h"
#include "server/base/toml_text.h"
#include "server/security/token.h"

namespace octavo::security {
namespace {

constexpr char kNameRule[] =
    "cn:, dns:, email:, uri: and the name as the certificate has it, or sha256: and 64 hex digits, "
    "with a colon between two bytes or without";

absl::Status Damaged(const toml::node& node, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("line ", node.source().begin.line, ": ", what));
}

// A fingerprint as openssl prints it (99:4A:...) has the one spelling of those that clients'
// certificates get; every other name stays as it is.
std::string Plain(const std::string& name) {
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, "sha256:")) return name;
  std::string plain;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i % 3 != 2 || digits[i] != ':' || i + 1 == digits.size()) plain += digits[i];
  }
  const bool colons = digits.size() == 64 + 31;
  return absl::StrCat("sha256:", absl::AsciiStrToLower(colons ? plain : std::string(digits)));
}

// For a name that is plain.
bool IsCertificateName(absl::string_view name) {
  if (absl::ConsumePrefix(&name, "sha256:"))
    return name.size() == 64 &&
           name.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
  for (const char* kind : {"cn:", "dns:", "email:", "uri:"}) {
    if (absl::ConsumePrefix(&name, kind))
      return !name.empty() && name.size() <= 256 &&
             std::none_of(name.begin(), name.end(),
                          [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  }
  return false;
}

absl::StatusOr<CertificateLine> LineOf(const toml::table& members, const std::string& name) {
  CertificateLine line;
  bool has_role = false;
  for (const auto& [toml_key, node] : members) {
    const std::string key(toml_key.str());
    const auto* const text = node.as_string();
    if (text == nullptr)
      return Damaged(node, absl::StrCat("'", key, "' of '", name, "' is no text"));
    const std::string& value = text->get();
    if (key == "role") {
      const auto role = RoleNamed(value);
      if (!role.has_value())
        return Damaged(node, absl::StrCat("'role' of '", name, "' is '", value,
                                          "'; allowed none, viewer, operator, admin"));
      line.role = *role;
      has_role = true;
    } else if (key == "name" || key == "project") {
      if (!IsTokenName(value))
        return Damaged(
            node, absl::StrCat("'", key, "' of '", name, "' is no name; allowed ", kTokenNameRule));
      (key == "name" ? line.name : line.project) = value;
    } else {
      return Damaged(node, absl::StrCat("'", key, "' of '", name,
                                        "' is not known; allowed role, name, project"));
    }
  }
  if (!has_role)
    return Damaged(members, absl::StrCat("'", name,
                                         "' has no role; allowed none, viewer, "
                                         "operator, admin"));
  return line;
}

absl::StatusOr<CertificateLines> LinesOf(const toml::table& file) {
  CertificateLines lines;
  const toml::table* table = nullptr;
  for (const auto& [toml_key, node] : file) {
    const std::string key(toml_key.str());
    if (key == "certificates") table = node.as_table();
    if (key != "certificates" || table == nullptr)
      return Damaged(node, absl::StrCat("'", key,
                                        "' is not [certificates], the one table "
                                        "that is allowed"));
  }
  if (table == nullptr)
    return absl::FailedPreconditionError("has no table [certificates]; an empty one is allowed");
  for (const auto& [key, node] : *table) {
    const std::string name = Plain(std::string(key.str()));
    if (!IsCertificateName(name))
      return Damaged(node, absl::StrCat("'", name, "' is no name of a certificate in quotes; ",
                                        "allowed ", kNameRule));
    const toml::table* const members = node.as_table();
    if (members == nullptr)
      return Damaged(node, absl::StrCat("'", name, R"(' is no { role = "…" })"));
    OCTAVO_ASSIGN_OR_RETURN(CertificateLine line, LineOf(*members, name));
    if (!lines.emplace(name, std::move(line)).second)
      return Damaged(node, absl::StrCat("names '", name, "' a second time"));
    if (lines.size() > kMostCertificateLines)
      return Damaged(node, absl::StrCat("is more than ", kMostCertificateLines, " names"));
  }
  return lines;
}

}  // namespace

absl::StatusOr<CertificateLines> ParseCertificateLines(absl::string_view text) {
  if (const absl::Status fit = CheckConfigText(text); !fit.ok())
    return absl::FailedPreconditionError(fit.message());
  try {
    return LinesOf(toml::parse(std::string_view(text.data(), text.size())));
  } catch (const toml::parse_error& e) {
    return absl::FailedPreconditionError(
        absl::StrCat("line ", e.source().begin.line,
                     e.description().find("redefine") != std::string_view::npos
                         ? ": names a certificate or a table a second time"
                         : ": is no TOML"));
  } catch (const std::logic_error&) {
    return absl::FailedPreconditionError("is no TOML");
  }
}

CertificateTable::CertificateTable(std::string path)
    : file_(std::move(path), ParseCertificateLines,
            {.bad = "the table of certificates cannot be used; the one before it stays valid",
             .changed = "table of certificates read again",
             .lines = "lines"}) {}

absl::StatusOr<std::unique_ptr<CertificateTable>> CertificateTable::Open(const std::string& path) {
  std::unique_ptr<CertificateTable> table(new CertificateTable(path));
  OCTAVO_RETURN_IF_ERROR(table->file_.Open());
  return table;
}

std::pair<std::string, CertificateLine> CertificateTable::Find(
    const ClientCertificate& certificate) const {
  const std::shared_ptr<const CertificateLines> lines = file_.Now();
  for (const std::string& name : certificate.names) {
    if (const auto it = lines->find(name); it != lines->end()) return *it;
  }
  return {};
}

std::set<std::string> CertificateTable::Names() const {
  const std::shared_ptr<const CertificateLines> lines = file_.Now();
  std::set<std::string> names;
  for (const auto& [name, line] : *lines) names.insert(line.name.empty() ? name : line.name);
  return names;
}

Role CertificateTable::RoleOf(const std::string& name, const std::string& project) const {
  const std::shared_ptr<const CertificateLines> lines = file_.Now();
  Role role = Role::kNone;
  for (const auto& [key, line] : *lines) {
    if ((line.name.empty() ? key : line.name) == name && line.project == project)
      role = std::max(role, line.role);
  }
  return role;
}

Role CertificateTable::RoleOf(const std::string& name) const {
  const std::shared_ptr<const CertificateLines> lines = file_.Now();
  Role role = Role::kNone;
  for (const auto& [key, line] : *lines) {
    if ((line.name.empty() ? key : line.name) == name) role = std::max(role, line.role);
  }
  return role;
}

}  // namespace octavo::security
