#include "server/security/certificate.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "tests/server/security/made_certificates.h"
#include "tests/support/status_matchers.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::kFrom;
using octavo::testing::kUntil;
using octavo::testing::MadeCertificate;
using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(CertificateTest, NamesComeWithTheirKindTheFingerprintFirst) {
  const auto made = MadeCertificate::Make(
      {.cn = "Änna Meier",
       .names = "DNS:pc7.lab,email:anna@lab.example,URI:spiffe://lab/anna,DNS:pc8.lab"});
  ASSERT_OK_AND_ASSIGN(const ClientCertificate read, ReadClientCertificate(made.Pem()));
  EXPECT_THAT(read.names,
              ElementsAre(StartsWith("sha256:"), "uri:spiffe://lab/anna", "email:anna@lab.example",
                          "dns:pc7.lab", "dns:pc8.lab", "cn:Änna Meier"));
  EXPECT_EQ(read.names[0].size(), 7 + 64);
  EXPECT_EQ(read.names[0], absl::StrCat("sha256:", FingerprintOf(*made.x509)));
  EXPECT_EQ(read.not_after, kUntil);
  EXPECT_EQ(NotBefore(*made.x509), kFrom);
}

// A person who reads the table, or the log, must see the name that counts.
TEST(CertificateTest, NamesThatDeceiveAreLeftOut) {
  const auto made = MadeCertificate::Make({.cn = std::string("anna\0.evil", 10)});
  ASSERT_OK_AND_ASSIGN(const ClientCertificate read, ReadClientCertificate(made.Pem()));
  EXPECT_THAT(read.names, ElementsAre(StartsWith("sha256:")));
  const auto two_lines = MadeCertificate::Make({.cn = "anna\nrole = admin"});
  ASSERT_OK_AND_ASSIGN(const ClientCertificate lines, ReadClientCertificate(two_lines.Pem()));
  EXPECT_THAT(lines.names, ElementsAre(StartsWith("sha256:")));
}

TEST(CertificateTest, ReadsAllOfAFileOrNone) {
  const std::string a = MadeCertificate::Make({}).Pem(), b = MadeCertificate::Make({}).Pem();
  EXPECT_EQ(ParseCertificates(absl::StrCat("# of the lab\n", a, "\nwords\n", b))->size(), 2u);
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  for (const std::string& none : {std::string(), std::string("words"), std::string(1000, '\0'),
                                  octavo::testing::MadeKey::Ec().Pem()})
    EXPECT_THAT(ParseCertificates(none), IsError(kInvalid, "holds no certificate")) << none;
  std::string damaged = b;
  damaged[damaged.size() / 2] = damaged[damaged.size() / 2] == 'A' ? 'B' : 'A';
  damaged[100] = '*';
  EXPECT_THAT(ParseCertificates(absl::StrCat(a, damaged)),
              IsError(kInvalid, "certificate 2 of it cannot be read"));
  EXPECT_THAT(ParseCertificates(absl::StrCat(a, b.substr(0, b.size() / 2))),
              IsError(kInvalid, "certificate 2 of it cannot be read"));
}

}  // namespace
}  // namespace octavo::security
