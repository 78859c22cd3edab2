// Any text as a file that decides who may come in, and who may change what. The first byte chooses
// the file: the table of certificates, the tokens, certificates in PEM (and each of them as bytes
// of DER), the files of TLS, the grants.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <openssl/x509.h>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/clock.h"
#include "server/security/certificate.h"
#include "server/security/certificate_table.h"
#include "server/security/grant.h"
#include "server/security/grant_book.h"
#include "server/security/grant_file.h"
#include "server/security/principal.h"
#include "server/security/rights.h"
#include "server/security/tls_set.h"
#include "server/security/token.h"
#include "server/security/token_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_folder.h"

namespace octavo::security {
namespace {

using fuzz::Require;

void CheckTable(absl::string_view text) {
  const auto lines = ParseCertificateLines(text);
  if (!lines.ok())
    return Require(absl::IsFailedPrecondition(lines.status()) && !lines.status().message().empty());
  for (const auto& [name, line] : *lines) {
    Require(absl::StrContains(name, ":"));
    Require(line.name.empty() || IsTokenName(line.name));
    Require(line.project.empty() || IsTokenName(line.project));
  }
}

void CheckTokens(absl::string_view text) {
  const auto tokens = ParseTokens(text);
  if (!tokens.ok()) return Require(absl::IsFailedPrecondition(tokens.status()));
  for (const TokenRecord& token : *tokens) {
    Require(token.sha256.size() == 32 && IsTokenName(token.name) && token.role != Role::kNone);
    Require(TimeOf(TimeText(token.created)) == token.created);
  }
  const auto again = ParseTokens(FormatTokens(*tokens));
  Require(again.ok() && *again == *tokens);
}

// What a table may say of the holder, and what logs and answers show.
void CheckNames(const std::vector<std::string>& names) {
  Require(!names.empty() && absl::StartsWith(names[0], "sha256:") && names[0].size() == 7 + 64);
  for (const std::string& name : names) {
    Require(name.size() <= 256 + 7);
    for (const char c : name) Require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    // As a key of TOML, each byte that is not plain is escaped.
    std::string key;
    for (const char c : name)
      absl::StrAppend(&key, c == '"' || c == '\\' ? "\\" : "", std::string(1, c));
    const auto line =
        ParseCertificateLines(absl::StrCat("[certificates]\n\"", key, "\" = {role = \"viewer\"}"));
    Require(line.ok() && line->size() == 1 && line->begin()->first == name);
  }
}

void CheckPem(absl::string_view pem) {
  const auto found = ParseCertificates(pem);
  if (!found.ok()) {
    Require(absl::IsInvalidArgument(found.status()));
    Require(!ReadClientCertificate(pem).ok());
    return;
  }
  Require(!found->empty());
  for (const Certificate& one : *found) {
    CheckNames(NamesOf(*one));
    (void)NotBefore(*one);
    (void)NotAfter(*one);
  }
  const auto client = ReadClientCertificate(pem);
  Require(client.ok() && client->names == NamesOf(*(*found)[0]));
}

std::string PemOf(absl::string_view der) {
  std::string pem = "-----BEGIN CERTIFICATE-----\n";
  const std::string text = absl::Base64Escape(der);
  for (size_t at = 0; at < text.size(); at += 64) absl::StrAppend(&pem, text.substr(at, 64), "\n");
  return pem + "-----END CERTIFICATE-----\n";
}

void CheckTls(fuzz::Input input) {
  const TlsFiles files{.certificate = "c.pem", .key = "k.pem", .client_ca = "ca.pem"};
  TlsTexts texts;
  texts.certificate = std::string(input.Until('\0'));
  texts.key = std::string(input.Until('\0'));
  texts.client_ca = std::string(input.Rest());
  const auto set = CheckTlsTexts(files, std::move(texts), 1'800'000'000);
  if (!set.ok())
    Require(absl::IsInvalidArgument(set.status()) &&
            absl::StrContains(set.status().message(), "."));
}

bool AreSame(const std::vector<Grant>& a, const std::vector<Grant>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Grant& x, const Grant& y) {
    return x.name == y.name && x.IsSameAs(y) && x.created_unix_ns == y.created_unix_ns &&
           x.expires_unix_ns == y.expires_unix_ns;
  });
}

void CheckGrants(absl::string_view text) {
  static const fuzz::ScratchFolder scratch;
  constexpr char kServer[] = "a1b2c3d4";
  constexpr int64_t kNow = 1'800'000'000'000'000'000;
  scratch.Clear();
  const std::string path = scratch.Write("grants.json", text);
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const GrantFile file(path, kServer);
  std::string aside;
  const auto grants = file.Read(kNow, &aside);
  Require(grants.ok() && std::filesystem::exists(path) == aside.empty());
  if (!aside.empty()) {  // it grants nothing, now and later
    Require(grants->empty());
    aside.clear();
    const auto again = file.Read(kNow, &aside);
    Require(again.ok() && again->empty() && aside.empty());
    return;
  }
  for (const Grant& grant : *grants) {
    Require(absl::StartsWith(grant.name, "grants/") && CouldBeGrantee(grant.grantee));
    Require(grant.object.empty() || IsGrantable(grant.object));
    Require(IsIdentity(grant.owner.name) && grant.owner.role == Role::kNone);
    Require(grant.created_unix_ns > 0 && grant.expires_unix_ns > 0);
  }
  Require(file.Write(file.TextOf(*grants)).ok());
  const auto again = file.Read(kNow, &aside);
  Require(again.ok() && aside.empty() && AreSame(*again, *grants));
  // Each grantee gets what was granted to it, and nobody else gets anything.
  const SystemClock clock;
  const auto book = GrantBook::Open(path, kServer, &clock, &aside);
  Require(book.ok() && (*book)->Count() <= static_cast<int64_t>(grants->size()));
  Principal nobody;
  nobody.name = "no grantee's name";
  nobody.role = Role::kOperator;
  nobody.proof = Proof::kToken;
  Require((*book)->Of(nobody) == nullptr);
  for (const Grant& grant : *grants) {
    Principal grantee = nobody;
    grantee.name = grant.grantee;
    (void)(*book)->Of(grantee);
  }
}

void Run(fuzz::Input input) {
  switch (input.Byte() & 7) {
    case 0: return CheckTable(input.Rest());
    case 1: return CheckTokens(input.Rest());
    case 2: return CheckPem(input.Rest());
    case 3: return CheckTls(input);
    case 4: return CheckTable(absl::StrCat("[certificates]\n", input.Rest()));
    case 5: return CheckTokens(absl::StrCat("{\"octavo_tokens\":1}\n", input.Rest()));
    case 7:
      if (input.Byte() % 2 == 0) return CheckGrants(input.Rest());
      return CheckGrants(absl::StrCat(
          R"({"format":"octavo grants 1","server_id":"a1b2c3d4","grants":[)", input.Rest(), "]}"));
    default: return CheckPem(PemOf(input.Rest()));
  }
}

}  // namespace
}  // namespace octavo::security

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  octavo::security::Run({data, size});
  return 0;
}
