#include "server/base/folder_access.h"

#include <cstdlib>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace octavo::base {
namespace {

/// AccessTo as a user without the rights of root, to whom permissions mean nothing.
int AccessOfAnOrdinaryUser(const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(100);
    ::_exit(static_cast<int>(AccessTo(folder)));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(FolderAccessTest, AFolderIsOfUseOnlyIfItsFilesCanBeOpened) {
  std::string folder = "/tmp/octavo-folder-access-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const struct {
    mode_t mode;
    FolderAccess access;
  } cases[] = {{0777, FolderAccess::kReadWrite}, {0555, FolderAccess::kRead},
               {0444, FolderAccess::kNone},      {0666, FolderAccess::kNone},
               {0111, FolderAccess::kNone},      {0333, FolderAccess::kNone}};
  for (const auto& one : cases) {
    ASSERT_EQ(::chmod(folder.c_str(), one.mode), 0);
    EXPECT_EQ(AccessOfAnOrdinaryUser(folder), static_cast<int>(one.access)) << std::oct << one.mode;
  }
  ASSERT_EQ(::rmdir(folder.c_str()), 0);
  EXPECT_EQ(AccessTo(folder), FolderAccess::kNone) << "missing";
}

}  // namespace
}  // namespace octavo::base
