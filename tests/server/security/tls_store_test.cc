#include "server/security/tls_store.h"

#include <cstdio>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "tests/server/security/made_certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::kFrom;
using octavo::testing::kUntil;
using octavo::testing::MadeCertificate;
using octavo::testing::TempFolder;
using Change = TlsStore::Change;

class TlsStoreTest : public ::testing::Test {
 protected:
  TlsStoreTest() {
    WritePair(server_);
    Write("ca", ca_.Pem(), 0644);
  }
  void Write(const std::string& name, const std::string& text, mode_t mode) {
    folder_.Write(name + ".new", text);
    ASSERT_EQ(::chmod((folder_ / (name + ".new")).c_str(), mode), 0);
    ASSERT_EQ(::rename((folder_ / (name + ".new")).c_str(), (folder_ / name).c_str()), 0);
  }
  void WritePair(const MadeCertificate& pair) {
    Write("certificate", pair.Pem(), 0644);
    Write("key", pair.key.Pem(), 0600);
  }
  std::unique_ptr<TlsStore> Open() {
    auto store = TlsStore::Open(files_, [this] { return now_; });
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // What comes of files that stay as they are.
  static Change Settle(TlsStore& store) {
    EXPECT_EQ(store.Look(), Change::kNone);
    return store.Look();
  }

  const TempFolder folder_;
  const TlsFiles files_{
      .certificate = folder_ / "certificate", .key = folder_ / "key", .client_ca = folder_ / "ca"};
  const MadeCertificate ca_ = MadeCertificate::Make({.cn = "Lab", .authority = true}),
                        other_ca_ = MadeCertificate::Make({.cn = "Other", .authority = true}),
                        server_ = MadeCertificate::Make({.cn = "one", .issuer = &ca_}),
                        next_ = MadeCertificate::Make({.cn = "two", .issuer = &ca_});
  int64_t now_ = kFrom + 1000;
};

TEST_F(TlsStoreTest, ANewPairIsTakenOverAsOne) {
  const auto store = Open();
  EXPECT_EQ(store->Get().generation, 1);
  EXPECT_EQ(Settle(*store), Change::kNone);
  const auto before = store->Get().set;
  // Between its two files nothing is judged.
  Write("certificate", next_.Pem(), 0644);
  EXPECT_EQ(store->Look(), Change::kNone);
  Write("key", next_.key.Pem(), 0600);
  EXPECT_EQ(store->Look(), Change::kNone);
  EXPECT_EQ(store->Get().set, before);
  EXPECT_EQ(store->Look(), Change::kNewSet);
  EXPECT_EQ(store->Get().generation, 2);
  EXPECT_EQ(store->Get().set->texts.key, next_.key.Pem());
  EXPECT_EQ(before->texts.key, server_.key.Pem());  // whoever has it may go on with it
  EXPECT_EQ(store->Count().reloads, 1);
  EXPECT_EQ(store->Count().reload_errors, 0);
  EXPECT_EQ(Settle(*store), Change::kNone);
}

TEST_F(TlsStoreTest, ABadSetKeepsTheOldOneAndIsCountedOnce) {
  const auto store = Open();
  const auto before = store->Get().set;
  int64_t errors = 0;
  const auto stays = [&](const char* what) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(store->Look(), Change::kNone) << what;
    EXPECT_EQ(store->Get().set, before) << what;
    EXPECT_EQ(store->Count().reload_errors, ++errors) << what;
    EXPECT_NE(store->Refused(), "") << what;
  };
  Write("key", next_.key.Pem(), 0600);
  stays("a key of another certificate");
  Write("key", "words", 0600);
  stays("no key");
  ASSERT_EQ(::unlink((folder_ / "key").c_str()), 0);
  stays("no file");
  Write("key", server_.key.Pem(), 0644);
  stays("a key that others may read");
  const auto old = MadeCertificate::Make({.until = now_ - 1});
  WritePair(old);
  stays("expired");
  EXPECT_NE(store->Refused().find("expired"), std::string::npos) << store->Refused();
  // It heals, and what is in use anyway is no new set.
  WritePair(server_);
  EXPECT_EQ(Settle(*store), Change::kNone);
  EXPECT_EQ(store->Refused(), "");
  EXPECT_EQ(store->Get().generation, 1);
  EXPECT_EQ(store->Count().reloads, 0);
  WritePair(next_);
  EXPECT_EQ(Settle(*store), Change::kNewSet);
}

// Two clocks differ: it is sound a moment later.
TEST_F(TlsStoreTest, ASetThatIsTooNewIsTakenOverWhenItsTimeHasCome) {
  const auto store = Open();
  const auto early = MadeCertificate::Make({.cn = "early", .from = now_ + 90, .issuer = &ca_});
  WritePair(early);
  EXPECT_EQ(Settle(*store), Change::kNone);
  for (; now_ < kFrom + 1000 + 90; now_ += 10) EXPECT_EQ(store->Look(), Change::kNone);
  EXPECT_EQ(store->Count().reload_errors, 1) << "told once";
  now_ += 60;
  EXPECT_EQ(store->Look(), Change::kNewSet);
  EXPECT_EQ(store->Get().set->texts.key, early.key.Pem());
}

TEST_F(TlsStoreTest, AnAuthorityThatIsWithdrawnIsTold) {
  const auto store = Open();
  Write("ca", absl::StrCat(ca_.Pem(), other_ca_.Pem()), 0644);
  EXPECT_EQ(Settle(*store), Change::kNewSet);  // one more: nobody loses anything
  Write("ca", absl::StrCat(other_ca_.Pem(), ca_.Pem()), 0644);
  EXPECT_EQ(Settle(*store), Change::kNewSet);  // in another order
  Write("ca", other_ca_.Pem(), 0644);
  EXPECT_EQ(Settle(*store), Change::kCaWithdrawn);
  EXPECT_EQ(store->Get().generation, 4);
}

TEST_F(TlsStoreTest, DoesNotOpenABadSet) {
  Write("key", next_.key.Pem(), 0600);
  EXPECT_THAT(TlsStore::Open(files_, [this] { return now_; }),
              IsError(absl::StatusCode::kInvalidArgument, "listen.tls.key"));
  WritePair(server_);
  now_ = kUntil;
  EXPECT_THAT(TlsStore::Open(files_, [this] { return now_; }),
              IsError(absl::StatusCode::kInvalidArgument, "expired"));
}

TEST_F(TlsStoreTest, CertificatesThatExpireWhileTheyAreUsedAreWarnedOfOnceADay) {
  const auto store = Open();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(store->Look(), Change::kNone);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  now_ = kUntil - 13 * 86'400;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(store->Look(), Change::kNone);
  const std::string soon = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(soon.find("expires soon"), std::string::npos) << soon;
  EXPECT_EQ(soon.find("expires soon"), soon.rfind("expires soon")) << soon;
  now_ = kUntil + 1;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(store->Look(), Change::kNone);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("has expired"), std::string::npos);
  EXPECT_EQ(store->Count().not_after, kUntil);
}

}  // namespace
}  // namespace octavo::security
