#include "server/security/named_principals.h"

#include <string>
#include <sys/stat.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/security/token.h"
#include "server/security/token_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NamedPrincipalsTest : public ::testing::Test {
 protected:
  std::string Write(const char* name, const std::string& text) {
    folder_.Write(name, text);
    EXPECT_EQ(::chmod((folder_ / name).c_str(), 0600), 0);
    return folder_ / name;
  }
  std::string Tokens(const std::vector<std::string>& names) {
    std::vector<TokenRecord> records;
    for (const std::string& name : names) {
      const std::string token = MakeToken();
      records.push_back({.id = IdOfToken(token).value(),
                         .sha256 = HashOfToken(token),
                         .name = name,
                         .role = Role::kOperator,
                         .project = "",
                         .created = 1});
    }
    return Write("tokens", FormatTokens(records));
  }

  const TempFolder folder_;
};

TEST_F(NamedPrincipalsTest, WhatIsGrantedToNobodyOrToAViewerHelpsNobody) {
  const auto tokens = TokenStore::Open(Tokens({"anna"}));
  ASSERT_THAT(tokens, IsOk());
  const auto lines =
      CertificateTable::Open(Write("certificates",
                                   "[certificates]\n\"cn:vera\" = { role = \"viewer\" "
                                   "}\n\"cn:otto\" = { role = \"operator\" }\n"));
  ASSERT_THAT(lines, IsOk());
  const NamedPrincipals names({}, {.tokens = tokens->get(), .certificates = lines->get()});
  EXPECT_EQ(names.WhyNoHelp("anna"), "");
  EXPECT_EQ(names.WhyNoHelp("cn:otto"), "");
  EXPECT_EQ(names.WhyNoHelp("uid:1000"), "") << "any user of the host may be one";
  EXPECT_THAT(names.WhyNoHelp("ana"), HasSubstr("helps nobody until one has"));
  EXPECT_THAT(names.WhyNoHelp("cn:vera"), HasSubstr("has the role viewer now"));
  EXPECT_THAT(names.WhyNoHelp("cn:dora"), HasSubstr("no token, line of a certificate"));
  const NamedPrincipals open({}, {.certificates = lines->get(), .any_certificate = true});
  EXPECT_EQ(open.WhyNoHelp("cn:dora"), "") << "certificates without a line may call, too";
  EXPECT_THAT(open.WhyNoHelp("uid:"), HasSubstr("no token"));
}

TEST_F(NamedPrincipalsTest, ANameThatNobodyHasIsToldUntilSomebodyHasIt) {
  const auto tokens = TokenStore::Open(Tokens({"anna", "bob"}));
  ASSERT_THAT(tokens, IsOk());
  NamedPrincipals names(
      {{"quota.exceptions", "bob"}, {"quota.roots", "ana"}, {"quota.roots", "carl"}},
      {.tokens = tokens->get()});
  EXPECT_THAT(names.Unknown(),
              ElementsAre(::testing::AllOf(HasSubstr("quota.roots names 'ana', which no token"),
                                           HasSubstr("did you mean anna?")),
                          HasSubstr("quota.roots names 'carl'")));
  const auto told = [&] {
    ::testing::internal::CaptureStderr();
    names.Look();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(told(), HasSubstr("'carl'"));
  EXPECT_EQ(told(), "") << "once, until something is read again";
  Tokens({"anna", "bob", "carl"});
  (*tokens)->Look();
  const std::string again = told();
  EXPECT_THAT(again, HasSubstr("'ana'"));
  EXPECT_THAT(again, ::testing::Not(HasSubstr("'carl'")));
  EXPECT_THAT(names.Unknown(), ElementsAre(HasSubstr("'ana'")));
}

TEST_F(NamedPrincipalsTest, CertificatesAndUsersAreCallersToo) {
  const auto table =
      CertificateTable::Open(Write("certificates",
                                   "[certificates]\n"
                                   "\"cn:anna\" = { role = \"operator\", name = \"anna\" }\n"
                                   "\"cn:bob\" = { role = \"viewer\" }\n"));
  ASSERT_THAT(table, IsOk());
  const std::vector<NamedPrincipals::Name> named = {{"quota.roots", "anna"},
                                                    {"quota.roots", "cn:bob"},
                                                    {"quota.roots", "uid:1000"},
                                                    {"quota.roots", "loopback"},
                                                    {"quota.roots", "remote"}};
  EXPECT_THAT(NamedPrincipals(named, {.certificates = table->get()}).Unknown(), IsEmpty());
  EXPECT_THAT(NamedPrincipals(named, {}).Unknown(), ::testing::SizeIs(2));
  // The line gives the certificate cn:anna another name; users have numbers.
  const std::vector<NamedPrincipals::Name> wrong = {{"quota.roots", "cn:anna"},
                                                    {"quota.roots", "uid:anna"}};
  EXPECT_THAT(NamedPrincipals(wrong, {.certificates = table->get()}).Unknown(),
              ElementsAre(HasSubstr("'cn:anna'"), HasSubstr("'uid:anna'")));
  // Where certificates without a line may call, everybody could be called so.
  EXPECT_THAT(
      NamedPrincipals(wrong, {.certificates = table->get(), .any_certificate = true}).Unknown(),
      ElementsAre(HasSubstr("'uid:anna'")));
}

}  // namespace
}  // namespace octavo::security
