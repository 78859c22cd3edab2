#include "server/rpc/transport/principal_resolver.h"

#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "server/rpc/transport/unix_peer.h"
#include "server/security/token_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::rpc {
namespace {

using security::Proof, security::Role;
constexpr char kLoopback[] = "ipv4:127.0.0.1:40000", kRemote[] = "ipv4:192.0.2.7:40000";

class PrincipalResolverTest : public ::testing::Test {
 protected:
  PrincipalResolverTest() {
    folder_.Write("tokens", security::FormatTokens({{.id = *security::IdOfToken(token_),
                                                     .sha256 = security::HashOfToken(token_),
                                                     .name = "anna",
                                                     .role = Role::kViewer,
                                                     .project = "retina",
                                                     .created = 1}}));
    EXPECT_EQ(::chmod((folder_ / "tokens").c_str(), 0600), 0);
    tokens_ = *security::TokenStore::Open(folder_ / "tokens");
  }
  absl::StatusOr<security::Principal> Resolve(const std::string& authorization,
                                              const std::string& peer, bool with_tokens = true,
                                              Role loopback = Role::kOperator) {
    PrincipalResolver::Metadata metadata;
    if (!authorization.empty()) metadata.emplace("authorization", authorization);
    const PrincipalResolver resolver(
        {.loopback_role = loopback, .tokens = with_tokens ? tokens_.get() : nullptr});
    return resolver.Resolve(metadata, peer);
  }
  void Refused(const std::string& authorization, const std::string& says, bool with_tokens = true) {
    // From wherever it comes: a bad token makes nobody another caller.
    for (const char* peer : {kLoopback, kRemote}) {
      const auto caller = Resolve(authorization, peer, with_tokens);
      ASSERT_FALSE(caller.ok());
      EXPECT_TRUE(absl::IsUnauthenticated(caller.status()));
      EXPECT_EQ(InfoOf(caller.status()).reason, Reason::kBadToken);
      EXPECT_NE(std::string(caller.status().message()).find(says), std::string::npos)
          << caller.status();
    }
  }

  const testing::TempFolder folder_;
  const std::string token_ = security::MakeToken();
  std::unique_ptr<security::TokenStore> tokens_;
};

TEST_F(PrincipalResolverTest, ATokenIsItsOwners) {
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER "}) {
    for (const char* peer : {kLoopback, kRemote}) {
      const auto caller = Resolve(absl::StrCat(scheme, token_), peer);
      ASSERT_TRUE(caller.ok()) << caller.status();
      EXPECT_EQ(caller->name, "anna");
      EXPECT_EQ(caller->role, Role::kViewer);  // less than loopback has without it
      EXPECT_EQ(caller->project, "retina");
      EXPECT_EQ(caller->proof, Proof::kToken);
      EXPECT_EQ(caller->found.find(token_.substr(16)), std::string::npos) << "the secret shows";
    }
  }
}

TEST_F(PrincipalResolverTest, ATokenThatIsNotValidIsAnError) {
  Refused("Bearer " + security::MakeToken(), "is not known");
  Refused("Bearer ", "malformed");
  Refused("Bearer  " + token_, "malformed");
  Refused("Bearer " + token_ + " ", "malformed");
  Refused(token_, "malformed");
  Refused("Basic YTpi", "malformed");
  Refused("Bearer " + token_, "this server takes no tokens", false);
  PrincipalResolver::Metadata twice;
  const std::string value = "Bearer " + token_;
  twice.emplace("authorization", value);
  twice.emplace("authorization", value);
  const PrincipalResolver resolver({.loopback_role = Role::kAdmin, .tokens = tokens_.get()});
  EXPECT_FALSE(resolver.Resolve(twice, kLoopback).ok());
}

TEST_F(PrincipalResolverTest, TcpWithoutATokenIsNobody) {
  for (const Role role : {Role::kNone, Role::kViewer, Role::kOperator, Role::kAdmin}) {
    const auto caller = Resolve("", kLoopback, true, role);
    ASSERT_TRUE(caller.ok());
    EXPECT_EQ(caller->role, role);
    EXPECT_EQ(caller->proof, Proof::kNone);
    EXPECT_EQ(Resolve("", kRemote, true, role)->role, Role::kNone) << "it could log in";
    EXPECT_EQ(Resolve("", kRemote, false, role)->role, Role::kNone) << "not on this host";
    const PrincipalResolver open({.loopback_role = Role::kAdmin, .insecure_role = role});
    EXPECT_EQ(open.Resolve({}, kRemote)->role, role);
  }
  for (const char* remote : {"ipv6:%5B2001:db8::1%5D:5", "", "unknown", "fd:99999", "fd:"})
    EXPECT_EQ(Resolve("", remote)->role, Role::kNone) << remote;
}

TEST_F(PrincipalResolverTest, ThisProcessUserIsAdminAtTheUnixSocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd other(ends[1]);
  const auto [fd, noted] = NotedUnixPeer::Note(UniqueFd(ends[0]), std::nullopt);
  const std::string peer = absl::StrCat("fd:", fd.get());
  const auto caller = Resolve("", peer, true, Role::kNone);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->role, Role::kAdmin);
  EXPECT_EQ(caller->proof, Proof::kSocketUser);
  EXPECT_EQ(caller->name, absl::StrCat("uid:", ::geteuid()));
  EXPECT_EQ(Resolve("Bearer " + token_, peer)->role, Role::kViewer)
      << "the token decides, not the user of the socket";
}

TEST_F(PrincipalResolverTest, ACertificateHasTheRoleOfItsLine) {
  folder_.Write("certificates",
                "[certificates]\n\"cn:anna\" = { role = \"operator\", project = "
                "\"retina\" }\n\"cn:pc-7\" = { role = \"viewer\", name = \"pc\" }\n"
                "\"cn:bert\" = { role = \"none\" }\n");
  ASSERT_EQ(::chmod((folder_ / "certificates").c_str(), 0600), 0);
  const auto table = *security::CertificateTable::Open(folder_ / "certificates");
  const PrincipalResolver resolver({.loopback_role = Role::kAdmin,
                                    .tokens = tokens_.get(),
                                    .certificates = table.get(),
                                    .certificate_role = Role::kViewer});
  const auto who = [&](const std::string& name, const std::string& authorization = "",
                       int64_t not_after = int64_t{1} << 40) {
    PrincipalResolver::Metadata metadata;
    if (!authorization.empty()) metadata.emplace("authorization", authorization);
    const security::ClientCertificate certificate{.names = {"sha256:x", name},
                                                  .not_after = not_after};
    // From this host as from another one.
    auto near = resolver.Resolve(metadata, kLoopback, &certificate);
    auto far = resolver.Resolve(metadata, kRemote, &certificate);
    EXPECT_EQ(near.ok(), far.ok());
    if (near.ok()) EXPECT_EQ(near->role, far->role);
    return near;
  };
  const auto anna = who("cn:anna");
  ASSERT_TRUE(anna.ok());
  EXPECT_EQ(anna->name, "cn:anna");
  EXPECT_EQ(anna->role, Role::kOperator);
  EXPECT_EQ(anna->project, "retina");
  EXPECT_EQ(anna->proof, Proof::kCertificate);
  EXPECT_EQ(anna->found, "the client's certificate: cn:anna");
  EXPECT_EQ(who("cn:pc-7")->name, "pc");
  EXPECT_EQ(who("cn:bert")->role, Role::kNone);
  const auto stranger = who("cn:stranger");
  EXPECT_EQ(stranger->role, Role::kViewer);
  EXPECT_EQ(stranger->name, "cn:stranger");
  EXPECT_NE(stranger->found.find("has no line"), std::string::npos);
  // A token on top wins, and a bad one is an error.
  EXPECT_EQ(who("cn:anna", "Bearer " + token_)->proof, Proof::kToken);
  EXPECT_TRUE(absl::IsUnauthenticated(who("cn:anna", "Bearer x").status()));
  const auto expired = who("cn:anna", "", 1'000'000'000);
  ASSERT_TRUE(absl::IsUnauthenticated(expired.status()));
  EXPECT_EQ(InfoOf(expired.status()).reason, Reason::kNoToken);
  EXPECT_NE(std::string(expired.status().message()).find("expired at 2001-"), std::string::npos);
}

}  // namespace
}  // namespace octavo::rpc
