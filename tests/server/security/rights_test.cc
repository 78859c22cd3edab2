#include "server/security/rights.h"

#include <memory>
#include <string>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"

namespace octavo::security {
namespace {

using testing::HasSubstr;
using testing::Not;

Principal Token(const std::string& name, Role role = Role::kOperator,
                const std::string& project = "") {
  return {.name = name,
          .role = role,
          .project = project,
          .proof = Proof::kToken,
          .token_id = "01234567",
          .found = absl::StrCat("the token 01234567 of ", name)};
}
Principal User(uint32_t uid) {
  return {.name = absl::StrCat("uid:", uid), .role = Role::kOperator, .proof = Proof::kSocketUser};
}
Principal Nobody(const std::string& name) {
  return {.name = name, .role = Role::kOperator, .proof = Proof::kNone};
}

TEST(RightsTest, TheOwnerMayAndOthersMayNot) {
  const Owner ada = OwnerOf(Token("ada"));
  EXPECT_EQ(ada, (Owner{.name = "ada", .project = ""}));
  EXPECT_TRUE(IsChangeableBy(Token("ada"), ada));
  EXPECT_TRUE(IsChangeableBy(Token("ada", Role::kViewer), ada));  // the role is the method's matter
  EXPECT_FALSE(IsChangeableBy(Token("bob"), ada));
  EXPECT_FALSE(IsChangeableBy(Token("Ada"), ada));
  EXPECT_FALSE(IsChangeableBy(User(1000), ada));
  EXPECT_FALSE(IsChangeableBy(Nobody("loopback"), ada));
  EXPECT_FALSE(IsChangeableBy(Nobody("remote"), ada));
  EXPECT_FALSE(IsChangeableBy(Principal{}, ada));
}

TEST(RightsTest, AdminsMayChangeEverything) {
  for (const char* owner : {"ada", "uid:0", "loopback", "remote", ""})
    EXPECT_TRUE(IsChangeableBy(Token("root", Role::kAdmin), {.name = owner})) << owner;
}

TEST(RightsTest, AProjectSharesIfItHasAName) {
  const Owner ada{.name = "ada", .project = "retina"};
  EXPECT_TRUE(IsChangeableBy(Token("bob", Role::kOperator, "retina"), ada));
  EXPECT_FALSE(IsChangeableBy(Token("bob", Role::kOperator, "Retina"), ada));
  EXPECT_FALSE(IsChangeableBy(Token("bob", Role::kOperator, "cornea"), ada));
  EXPECT_FALSE(IsChangeableBy(Token("bob"), ada));
  EXPECT_FALSE(IsChangeableBy(Token("bob"), {.name = "ada"}));
  EXPECT_TRUE(IsChangeableBy(Token("ada", Role::kOperator, "cornea"), ada));
}

TEST(RightsTest, WhatIsNobodysIsEverybodys) {
  const Owner nobody;
  EXPECT_TRUE(IsChangeableBy(Token("ada"), nobody));
  EXPECT_TRUE(IsChangeableBy(User(1000), nobody));
  EXPECT_TRUE(IsChangeableBy(Nobody("loopback"), nobody));
  EXPECT_TRUE(IsChangeableBy(Principal{}, nobody));
}

TEST(RightsTest, CallersWithoutIdentityShareAndUsersOfTheSocketWithThem) {
  for (const char* owner : {"loopback", "remote"}) {
    EXPECT_TRUE(IsChangeableBy(Nobody("loopback"), {.name = owner}));
    EXPECT_TRUE(IsChangeableBy(Nobody("remote"), {.name = owner}));
    EXPECT_TRUE(IsChangeableBy(User(1000), {.name = owner}));
    EXPECT_FALSE(IsChangeableBy(Token("ada"), {.name = owner}));
    EXPECT_FALSE(IsChangeableBy(Principal{}, {.name = owner}));
  }
}

TEST(RightsTest, OnOneUsersMachineTcpIsTheSamePerson) {
  const Owner own{.name = absl::StrCat("uid:", ::geteuid())};
  const Owner other{.name = absl::StrCat("uid:", ::geteuid() + 1)};
  EXPECT_TRUE(IsChangeableBy(Nobody("loopback"), own));
  EXPECT_FALSE(IsChangeableBy(Nobody("loopback"), other));
  EXPECT_FALSE(IsChangeableBy(Token("ada"), own));
  EXPECT_FALSE(IsChangeableBy(User(::geteuid() + 1), own));
  EXPECT_FALSE(IsChangeableBy(Principal{}, own));
}

TEST(RightsTest, TheRefusalNamesObjectOwnerCallerAndWhoMay) {
  const Owner ada{.name = "ada", .project = "retina"};
  const absl::Status status =
      MayChange(Token("bob", Role::kOperator, "cornea"), ada, "volumes/a-1");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  const ErrorInfo info = InfoOf(status);
  EXPECT_EQ(info.reason, Reason::kNotOwner);
  EXPECT_THAT(info.numbers, testing::UnorderedElementsAre(testing::Pair("object", "volumes/a-1"),
                                                          testing::Pair("owner", "ada"),
                                                          testing::Pair("caller", "bob"),
                                                          testing::Pair("project", "retina")));
  EXPECT_EQ(
      status.message(),
      "volumes/a-1 belongs to ada (project retina); the caller is bob (project cornea), found by "
      "the token 01234567 of bob; allowed to change it are its owner, callers of its project, "
      "and admins; its owner or an admin may let others change it by a grant (CreateGrant)");
  EXPECT_THAT(std::string(MayChange(Principal{}, {.name = "ada"}, "scans/b").message()),
              testing::AllOf(HasSubstr("the caller is nobody"), Not(HasSubstr("project"))));
  EXPECT_TRUE(MayChange(Token("ada"), ada, "volumes/a-1").ok());
  // Where nobody could grant anything, the message does not send anybody there.
  EXPECT_THAT(std::string(MayChange(Token("bob"), {.name = "loopback"}, "scans/b").message()),
              Not(HasSubstr("grant")));
}

TEST(RightsTest, WhatIsGrantedMayBeChangedAndNothingElse) {
  const Owner ada{.name = "ada", .project = "retina"};
  auto granted = std::make_shared<GrantedObjects>();
  granted->Add(ada, "scans/a");
  Principal bob = Token("bob");
  bob.granted = granted;
  EXPECT_TRUE(MayChange(bob, ada, "scans/a").ok());
  EXPECT_TRUE(MayChange(bob, ada, "volumes/b", "scans/a").ok());
  EXPECT_FALSE(MayChange(bob, ada, "volumes/b", "scans/c").ok());
  EXPECT_FALSE(MayChange(bob, ada, "volumes/b").ok());
  EXPECT_FALSE(IsChangeableBy(bob, ada));  // of no object: only a grant of all would do
  EXPECT_FALSE(MayChange(bob, {.name = "ada"}, "scans/a").ok());
  EXPECT_FALSE(MayChange(bob, {.name = "carol", .project = "retina"}, "scans/a").ok());
  EXPECT_FALSE(MayChange(WithoutGrants(bob), ada, "scans/a").ok());
  granted->Add(ada, "");
  EXPECT_TRUE(IsChangeableBy(bob, ada));
}

TEST(RightsTest, OnlyTheOwnerAndAdminsGrant) {
  const Owner ada{.name = "ada", .project = "retina"};
  const auto reason = [](const Principal& caller, const Owner& owner) {
    return InfoOf(MayGrant(caller, owner, "scans/a")).reason;
  };
  EXPECT_TRUE(MayGrant(Token("ada", Role::kOperator, "retina"), ada, "scans/a").ok());
  EXPECT_TRUE(MayGrant(Token("root", Role::kAdmin), ada, "scans/a").ok());
  EXPECT_EQ(reason(Token("eve", Role::kOperator, "retina"), ada), Reason::kNotOwner);
  EXPECT_EQ(reason(Token("ada", Role::kOperator, "cornea"), ada), Reason::kNotOwner);
  auto granted = std::make_shared<GrantedObjects>();
  granted->Add(ada, "");
  Principal bob = Token("bob");
  bob.granted = granted;
  EXPECT_EQ(reason(bob, ada), Reason::kNotOwner);  // cannot be passed on
  EXPECT_EQ(reason(Nobody("loopback"), ada), Reason::kNoIdentity);
  EXPECT_EQ(reason(Nobody("loopback"), {.name = "loopback"}), Reason::kNoIdentity);
  EXPECT_EQ(reason(Principal{}, {}), Reason::kNoIdentity);
  for (const char* owner : {"loopback", "remote", ""}) {
    EXPECT_EQ(reason(Token("root", Role::kAdmin), {.name = owner}), Reason::kNoIdentity) << owner;
    EXPECT_EQ(reason(User(1000), {.name = owner}), Reason::kNoIdentity) << owner;
  }
}

TEST(RightsTest, TheOwnerTheGranteeAndAdminsTakeBack) {
  const Grant grant{.name = "grants/a",
                    .object = "scans/a",
                    .grantee = "bob",
                    .owner = {.name = "ada", .project = "retina"}};
  EXPECT_TRUE(MayRevoke(Token("ada", Role::kOperator, "retina"), grant).ok());
  EXPECT_TRUE(MayRevoke(Token("bob", Role::kOperator, "cornea"), grant).ok());
  EXPECT_TRUE(MayRevoke(Token("root", Role::kAdmin), grant).ok());
  for (const Principal& caller :
       {Token("eve", Role::kOperator, "retina"), Token("ada", Role::kOperator, "cornea"),
        Token("carol"), Nobody("bob"), Nobody("loopback"), Principal{}})
    EXPECT_EQ(InfoOf(MayRevoke(caller, grant)).reason, Reason::kNotOwner) << caller.name;
}

}  // namespace
}  // namespace octavo::security
