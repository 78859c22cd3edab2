#include "server/security/credential.h"

#include <cstdlib>
#include <sys/stat.h>
#include <unistd.h>

#include "server/security/secret_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::TempFolder;

class CredentialTest : public ::testing::Test {
 protected:
  CredentialTest() { ::setenv("CREDENTIALS_DIRECTORY", folder_.path().c_str(), 1); }
  ~CredentialTest() override { ::unsetenv("CREDENTIALS_DIRECTORY"); }
  const TempFolder folder_;
};

TEST_F(CredentialTest, NamesOfCredentialsBecomePaths) {
  EXPECT_EQ(*ExpandCredential("credential:tls.key"), folder_ / "tls.key");
  EXPECT_EQ(*ExpandCredential("/etc/octavo/tls.key"), "/etc/octavo/tls.key");
  EXPECT_EQ(*ExpandCredential(""), "");
  for (const char* bad : {"credential:", "credential:a/b", "credential:..", "credential:."})
    EXPECT_THAT(ExpandCredential(bad), IsError(absl::StatusCode::kInvalidArgument, bad));
  ::unsetenv("CREDENTIALS_DIRECTORY");
  EXPECT_THAT(ExpandCredential("credential:tls.key"),
              IsError(absl::StatusCode::kFailedPrecondition, "LoadCredential=tls.key:/path"));
}

TEST_F(CredentialTest, OnlyFilesInTheFolderAreCredentials) {
  EXPECT_TRUE(IsCredential(folder_ / "tls.key"));
  EXPECT_TRUE(IsCredential(folder_.path() + "/./x/../tls.key"));
  EXPECT_FALSE(IsCredential(folder_ / "x/tls.key"));
  EXPECT_FALSE(IsCredential(folder_.path()));
  EXPECT_FALSE(IsCredential("/tls.key"));
  ::unsetenv("CREDENTIALS_DIRECTORY");
  EXPECT_FALSE(IsCredential(folder_ / "tls.key"));
  ::setenv("CREDENTIALS_DIRECTORY", "relative", 1);
  EXPECT_FALSE(IsCredential("relative/tls.key"));
}

// systemd gives its files to root and lists the service's user beside it, which shows as the bits
// of a group.
TEST_F(CredentialTest, ACredentialOfRootMayHaveMode0440) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  folder_.Write("key", "secret");
  ASSERT_EQ(::chmod((folder_ / "key").c_str(), 0440), 0);
  EXPECT_EQ(*ReadSecretFile(folder_ / "key"), "secret");
  for (const mode_t mode : {0444, 0460, 0660}) {
    ASSERT_EQ(::chmod((folder_ / "key").c_str(), mode), 0);
    EXPECT_THAT(ReadSecretFile(folder_ / "key"),
                IsError(absl::StatusCode::kFailedPrecondition, "others may read"));
  }
  ASSERT_EQ(::chmod((folder_ / "key").c_str(), 0440), 0);
  ::unsetenv("CREDENTIALS_DIRECTORY");
  EXPECT_THAT(ReadSecretFile(folder_ / "key"),
              IsError(absl::StatusCode::kFailedPrecondition, "has mode 0440"));
}

}  // namespace
}  // namespace octavo::security
