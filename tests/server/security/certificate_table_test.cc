#include "server/security/certificate_table.h"

#include <cstdio>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;

constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
const std::string kPrint = "sha256:" + std::string(64, 'a');

/// As openssl x509 -fingerprint -sha256 prints it.
std::string Pasted() {
  std::string text = "99:4A";
  for (int i = 2; i < 32; ++i) text += ":F0";
  return text;
}

TEST(CertificateLinesTest, EachNameHasARole) {
  ASSERT_OK_AND_ASSIGN(const CertificateLines lines,
                       ParseCertificateLines(absl::StrCat(R"(
# of the lab
[certificates]
"cn:Änna Meier" = { role = "operator", project = "retina" }
"uri:spiffe://lab.example/pc-7" = { role = "viewer", name = "pc-7" }
"email:a@b" = { role = "admin" }
"dns:*.lab" = { role = "viewer" }
")",
                                                          kPrint, R"(" = { role = "none" }
[certificates."cn:bert"]
role = "viewer"
)")));
  EXPECT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.at("cn:Änna Meier"),
            (CertificateLine{.role = Role::kOperator, .name = "", .project = "retina"}));
  EXPECT_EQ(lines.at("uri:spiffe://lab.example/pc-7").name, "pc-7");
  EXPECT_EQ(lines.at("email:a@b").role, Role::kAdmin);
  EXPECT_EQ(lines.at(kPrint).role, Role::kNone);
  EXPECT_EQ(lines.at("cn:bert").role, Role::kViewer);
  EXPECT_THAT(ParseCertificateLines("[certificates]\n"), IsOk());
}

TEST(CertificateLinesTest, AFingerprintIsTakenAsOpensslPrintsIt) {
  std::string plain = "sha256:994a";
  for (int i = 2; i < 32; ++i) plain += "f0";
  for (const std::string& given : {"sha256:" + Pasted(), plain}) {
    ASSERT_OK_AND_ASSIGN(const CertificateLines lines,
                         ParseCertificateLines(absl::StrCat("[certificates]\n\"", given,
                                                            "\" = { role = \"none\" }\n")));
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines.begin()->first, plain);
  }
}

TEST(CertificateLinesTest, DamagedTextsNameWhatIsWrong) {
  const auto with = [](const std::string& line) { return "[certificates]\n" + line + "\n"; };
  const std::pair<std::string, const char*> cases[] = {
      {"", "has no table [certificates]"},
      {"certificates = 1\n", "line 1: 'certificates' is not [certificates]"},
      {"[tokens]\n", "'tokens' is not [certificates]"},
      {"[certificates]\n[more]\n", "'more' is not [certificates]"},
      {with("anna = { role = \"viewer\" }"), "line 2: 'anna' is no name of a certificate"},
      {with("\"CN:anna\" = { role = \"viewer\" }"), "is no name of a certificate"},
      {with("\"cn:\" = { role = \"viewer\" }"), "is no name of a certificate"},
      {with("\"sha256:aa\" = { role = \"viewer\" }"), "is no name of a certificate"},
      {with("\"sha256:" + std::string(64, 'G') + "\" = { role = \"viewer\" }"),
       "is no name of a certificate"},
      {with("\"SHA256:" + std::string(64, 'a') + "\" = { role = \"viewer\" }"),
       "is no name of a certificate"},
      {with("\"sha256:" + std::string(95, 'a') + "\" = { role = \"viewer\" }"),
       "is no name of a certificate"},
      {with("\"sha256:" + Pasted() + ":\" = { role = \"viewer\" }"), "is no name of a certificate"},
      {with("\"sha256:" + Pasted().substr(3) + "\" = { role = \"viewer\" }"),
       "is no name of a certificate"},
      {with("\"sha256:9:94A" + Pasted().substr(5) + "\" = { role = \"viewer\" }"),
       "is no name of a certificate"},
      {with("\"" + kPrint + "\" = { role = \"viewer\" }\n\"sha256:" + std::string(64, 'A') +
            "\" = { role = \"none\" }"),
       "a second time"},
      {with("\"cn:a\\u0000\" = { role = \"viewer\" }"), "line 2"},
      {with("\"cn:anna\" = \"viewer\""), "line 2: 'cn:anna' is no { role = "},
      {with("\"cn:anna\" = { }"), "'cn:anna' has no role"},
      {with("\"cn:anna\" = { role = \"root\" }"), "'role' of 'cn:anna' is 'root'; allowed none, "},
      {with("\"cn:anna\" = { role = 3 }"), "'role' of 'cn:anna' is no text"},
      {with("\"cn:anna\" = { role = \"viewer\", until = \"x\" }"),
       "'until' of 'cn:anna' is not known"},
      {with("\"cn:anna\" = { role = \"viewer\", project = \"a b\" }"),
       "'project' of 'cn:anna' is no name"},
      {with("\"cn:anna\" = { role = \"viewer\", name = \"\" }"), "'name' of 'cn:anna' is no name"},
      {with("\"cn:anna\" = { role = \"viewer\", name = \"cn:bert\" }"), "is no name"},
      {with("\"cn:anna\" = { role = \"viewer\" }\n\"cn:anna\" = { role = \"admin\" }"),
       "a second time"},
      {with("\"cn:anna\" = { role = \"viewer\""), "line "},
      {"[[[a]]]\n", "allowed"},
      {"\xff\xfe", ""},
      {std::string(2 << 20, '#'), "more than 1048576 bytes"},
  };
  for (const auto& [text, says] : cases)
    EXPECT_THAT(ParseCertificateLines(text), IsError(kFailed, says)) << text.substr(0, 100);
}

class CertificateTableTest : public ::testing::Test {
 protected:
  void Write(const std::string& lines, mode_t mode = 0600) {
    folder_.Write("new", "[certificates]\n" + lines);
    ASSERT_EQ(::chmod((folder_ / "new").c_str(), mode), 0);
    ASSERT_EQ(::rename((folder_ / "new").c_str(), path_.c_str()), 0);
  }
  const TempFolder folder_;
  const std::string path_ = folder_ / "certificates.toml";
  const ClientCertificate anna_{.names = {kPrint, "uri:u", "cn:anna"}, .not_after = 1};
};

TEST_F(CertificateTableTest, TheFirstNameWithALineDecides) {
  Write("\"cn:anna\" = { role = \"operator\" }\n");
  ASSERT_OK_AND_ASSIGN(const auto table, CertificateTable::Open(path_));
  EXPECT_EQ(table->Find(anna_).first, "cn:anna");
  EXPECT_EQ(table->Find(anna_).second.role, Role::kOperator);
  EXPECT_EQ(table->Find({.names = {"cn:bert"}, .not_after = 1}).first, "");
  EXPECT_EQ(table->Find({}).first, "");
  Write("\"cn:anna\" = { role = \"operator\" }\n\"uri:u\" = { role = \"viewer\" }\n");
  table->Look();
  EXPECT_EQ(table->Find(anna_).first, "uri:u");
  // A certificate that was lost, of a holder who has a new one.
  Write("\"cn:anna\" = { role = \"operator\" }\n\"" + kPrint + "\" = { role = \"none\" }\n");
  table->Look();
  EXPECT_EQ(table->Find(anna_).second.role, Role::kNone);
  EXPECT_EQ(table->Count().lines, 2);
  EXPECT_EQ(table->Count().reloads, 2);
}

TEST_F(CertificateTableTest, ABadFileKeepsTheOldLinesAndIsCountedOnce) {
  Write("\"cn:anna\" = { role = \"operator\" }\n");
  ASSERT_OK_AND_ASSIGN(const auto table, CertificateTable::Open(path_));
  int64_t errors = 0;
  const auto stays = [&] {
    for (int i = 0; i < 3; ++i) table->Look();
    EXPECT_EQ(table->Find(anna_).second.role, Role::kOperator);
    EXPECT_EQ(table->Count().reload_errors, ++errors);
  };
  Write("words");
  stays();
  Write("\"cn:anna\" = { role = \"none\" }\n", 0640);
  stays();
  std::remove(path_.c_str());
  stays();
  Write("\"cn:anna\" = { role = \"none\" }\n");
  table->Look();
  EXPECT_EQ(table->Find(anna_).second.role, Role::kNone);
}

TEST_F(CertificateTableTest, DoesNotOpenWhatOthersMayChange) {
  Write("", 0644);
  EXPECT_THAT(CertificateTable::Open(path_), IsError(kFailed, "has mode 0644"));
  EXPECT_THAT(CertificateTable::Open(folder_ / "none"),
              IsError(absl::StatusCode::kNotFound, "cannot be opened"));
}

}  // namespace
}  // namespace octavo::security
