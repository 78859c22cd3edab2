#include "server/security/token_store.h"

#include <atomic>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "server/security/token_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TokenStoreTest : public ::testing::Test {
 protected:
  TokenStoreTest() { Write({Record(anna_, Role::kOperator)}); }

  static TokenRecord Record(const std::string& token, Role role, int64_t expires = 0) {
    return {.id = IdOfToken(token).value(),
            .sha256 = HashOfToken(token),
            .name = "anna",
            .role = role,
            .project = "retina",
            .created = 1,
            .expires = expires};
  }
  void WriteText(const std::string& text) {
    folder_.Write("tokens.new", text);
    ASSERT_EQ(::chmod((folder_ / "tokens.new").c_str(), 0600), 0);
    ASSERT_EQ(::rename((folder_ / "tokens.new").c_str(), path_.c_str()), 0);
  }
  void Write(const std::vector<TokenRecord>& tokens) { WriteText(FormatTokens(tokens)); }
  std::unique_ptr<TokenStore> Open() {
    auto store = TokenStore::Open(path_, [this] { return now_.load(); });
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }
  static std::string Refused(const TokenStore& store, const std::string& token) {
    const auto record = store.Check(token);
    EXPECT_THAT(record, IsError(absl::StatusCode::kUnauthenticated, ""));
    return std::string(record.status().message());
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "tokens", anna_ = MakeToken();
  std::atomic<int64_t> now_{1'000'000};
};

TEST_F(TokenStoreTest, KnowsItsTokensAndNoOthers) {
  const auto store = Open();
  EXPECT_EQ(store->Check(anna_).value(), Record(anna_, Role::kOperator));
  std::string other_secret = anna_;
  other_secret.back() = other_secret.back() == '0' ? '1' : '0';
  const std::string stranger = MakeToken();
  // Whether the id is known does not show.
  EXPECT_EQ(Refused(*store, other_secret), Refused(*store, stranger));
  EXPECT_THAT(Refused(*store, stranger), HasSubstr("is not known"));
  EXPECT_THAT(Refused(*store, "Bearer"), HasSubstr("malformed"));
  EXPECT_THAT(Refused(*store, ""), HasSubstr("malformed"));
}

TEST_F(TokenStoreTest, MessagesTellNoPartOfAToken) {
  const auto store = Open();
  const std::string stranger = MakeToken();
  for (const std::string& token : {stranger, stranger + "x", std::string("octavo_hunter2")}) {
    const std::string text = Refused(*store, token);
    EXPECT_THAT(text, Not(HasSubstr(token)));
    EXPECT_THAT(text, Not(HasSubstr(token.substr(7, 8))));
  }
}

TEST_F(TokenStoreTest, ATokenExpires) {
  Write({Record(anna_, Role::kOperator, 1'000'010)});
  const auto store = Open();
  now_ = 1'000'009;
  EXPECT_THAT(store->Check(anna_), IsOk());
  EXPECT_THAT(store->Again(*IdOfToken(anna_)), IsOk());
  now_ = 1'000'010;
  EXPECT_THAT(Refused(*store, anna_), HasSubstr("expired at 1970-01-12T13:46:50Z"));
  EXPECT_THAT(store->Again(*IdOfToken(anna_)), IsError(absl::StatusCode::kUnauthenticated, ""));
}

TEST_F(TokenStoreTest, TakesAChangedFileOver) {
  const auto store = Open();
  store->Look();
  EXPECT_EQ(store->Count().reloads, 0);  // nothing has changed
  const std::string ben = MakeToken();
  Write({Record(ben, Role::kViewer)});
  store->Look();
  EXPECT_EQ(store->Check(ben)->role, Role::kViewer);
  EXPECT_THAT(Refused(*store, anna_), HasSubstr("revoked"));
  EXPECT_THAT(store->Again(*IdOfToken(anna_)), IsError(absl::StatusCode::kUnauthenticated, ""));
  EXPECT_EQ(store->Count().reloads, 1);
}

TEST_F(TokenStoreTest, ABadFileKeepsTheOldTokensAndIsCountedOnce) {
  const auto store = Open();
  int64_t errors = 0;
  const auto bad = [&](const std::string& what) {
    for (int i = 0; i < 3; ++i) store->Look();
    EXPECT_EQ(store->Count().reload_errors, ++errors) << what;
    EXPECT_THAT(store->Check(anna_), IsOk()) << what;
    EXPECT_EQ(store->Count().tokens, 1);
    EXPECT_THAT(store->Refused(), AllOf(HasSubstr(path_), HasSubstr("stays in force"))) << what;
  };
  EXPECT_EQ(store->Refused(), "");
  WriteText("");
  bad("empty");
  WriteText("{\"octavo_tokens\":1}\n{\"id\":");
  bad("torn");
  Write({});
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  bad("readable by others");
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  bad("gone");
  ASSERT_EQ(::symlink("/dev/null", path_.c_str()), 0);
  bad("a link");
  EXPECT_EQ(store->Count().reloads, 0);
  Write({});
  store->Look();
  EXPECT_EQ(store->Refused(), "");
  EXPECT_THAT(store->Check(anna_), IsError(absl::StatusCode::kUnauthenticated, ""));
  EXPECT_EQ(store->Count().reloads, 1);
}

TEST_F(TokenStoreTest, DoesNotBeginWithABadFile) {
  WriteText("tokens\n");
  const auto store = TokenStore::Open(path_);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path_ + ": line 1"));
  EXPECT_THAT(TokenStore::Open(folder_ / "none"), IsError(absl::StatusCode::kNotFound, ""));
}

TEST_F(TokenStoreTest, IsCheckedWhileItIsReadAgain) {
  const auto store = Open();
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0};
  std::jthread checker([&] {
    while (!stop) failed += store->Check(anna_).ok() ? 0 : 1;
  });
  for (int i = 0; i < 100; ++i) {
    Write({Record(anna_, i % 2 == 0 ? Role::kAdmin : Role::kViewer)});
    store->Look();
  }
  stop = true;
  checker.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(store->Count().reloads, 100);
}

}  // namespace
}  // namespace octavo::security
