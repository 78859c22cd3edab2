#include "server/security/tls_set.h"

#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "server/security/certificate.h"
#include "tests/server/security/made_certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::security {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::kFrom;
using octavo::testing::kUntil;
using octavo::testing::MadeCertificate;
using octavo::testing::MadeKey;
using octavo::testing::TempFolder;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kNow = kFrom + 1000;

class TlsSetTest : public ::testing::Test {
 protected:
  absl::StatusOr<TlsSet> Check(const std::string& certificate, const std::string& key,
                               const std::string& client_ca = "", int64_t now = kNow) {
    const TlsFiles files{
        .certificate = "/c", .key = "/k", .client_ca = client_ca.empty() ? "" : "/a"};
    return CheckTlsTexts(files, {certificate, key, client_ca}, now);
  }
  MadeCertificate Server(const MadeCertificate* issuer) {
    return MadeCertificate::Make(
        {.cn = "localhost", .names = "DNS:localhost", .usage = "serverAuth", .issuer = issuer});
  }

  const MadeCertificate ca_ = MadeCertificate::Make({.cn = "Lab", .authority = true});
  const MadeCertificate between_ = MadeCertificate::Make(
      {.cn = "Between", .authority = true, .until = kUntil - 10, .issuer = &ca_});
  const MadeCertificate server_ = Server(&between_);
};

TEST_F(TlsSetTest, TakesAChainItsKeyAndTheAuthoritiesOfClients) {
  const MadeCertificate other = MadeCertificate::Make({.cn = "Other", .authority = true});
  ASSERT_OK_AND_ASSIGN(const TlsSet set,
                       Check(absl::StrCat(server_.Pem(), between_.Pem()), server_.key.Pem(),
                             absl::StrCat(ca_.Pem(), other.Pem())));
  EXPECT_EQ(set.not_after, kUntil - 10);  // the first of the chain that ends
  EXPECT_THAT(set.names, ::testing::Contains("dns:localhost"));
  EXPECT_EQ(set.client_cas.size(), 2u);
  EXPECT_TRUE(std::is_sorted(set.client_cas.begin(), set.client_cas.end()));
  EXPECT_THAT(Check(server_.Pem(), server_.key.Pem()), IsOk());
  // Self-signed, of either kind of key.
  const auto own = MadeCertificate::Make({.key = MadeKey::Rsa(2048)});
  EXPECT_THAT(Check(own.Pem(), own.key.Pem()), IsOk());
}

TEST_F(TlsSetTest, RefusesAPairThatDoesNotFit) {
  EXPECT_THAT(Check(server_.Pem(), ca_.key.Pem()),
              IsError(kInvalid, "listen.tls.key: /k: is not the key of the certificate in /c"));
  // The server's own comes first.
  EXPECT_THAT(Check(absl::StrCat(between_.Pem(), server_.Pem()), server_.key.Pem()),
              IsError(kInvalid, "is not the key of the certificate"));
}

TEST_F(TlsSetTest, RefusesAChainWithAHole) {
  EXPECT_THAT(Check(absl::StrCat(server_.Pem(), ca_.Pem()), server_.key.Pem()),
              IsError(kInvalid,
                      "listen.tls.certificate: /c: certificate 1 was not issued by certificate 2"));
  // The same name, but another key.
  const auto forged = MadeCertificate::Make({.cn = "Between", .authority = true});
  EXPECT_THAT(Check(absl::StrCat(server_.Pem(), forged.Pem()), server_.key.Pem()),
              IsError(kInvalid, "was not issued by certificate 2"));
}

TEST_F(TlsSetTest, RefusesWhatIsNotValidNow) {
  const std::string chain = absl::StrCat(server_.Pem(), between_.Pem());
  EXPECT_THAT(Check(chain, server_.key.Pem(), "", kUntil - 10),
              IsError(kInvalid, "listen.tls.certificate: /c: certificate 2 expired at 2033-"));
  EXPECT_THAT(Check(chain, server_.key.Pem(), "", kUntil),
              IsError(kInvalid, "the certificate expired at 2033-05-18T03:33:20Z"));
  EXPECT_THAT(Check(chain, server_.key.Pem(), "", kFrom - 1),
              IsError(kInvalid, "the certificate is valid only from 2001-09-09T01:46:40Z on"));
}

TEST_F(TlsSetTest, RefusesWhatCannotServe) {
  const auto of_client = MadeCertificate::Make({.usage = "clientAuth"});
  EXPECT_THAT(Check(of_client.Pem(), of_client.key.Pem()), IsError(kInvalid, "is not for servers"));
  const auto short_key = MadeCertificate::Make({.key = MadeKey::Rsa(1024)});
  EXPECT_THAT(Check(short_key.Pem(), short_key.key.Pem()),
              IsError(kInvalid, "TLS does not take the certificate: ee key too small"));
}

TEST_F(TlsSetTest, RefusesTextsThatAreNone) {
  EXPECT_THAT(Check("", server_.key.Pem()),
              IsError(kInvalid, "listen.tls.certificate: /c: holds no"));
  for (const std::string& none :
       {std::string(), std::string("words"), server_.Pem(), server_.key.Pem().substr(0, 100)})
    EXPECT_THAT(Check(server_.Pem(), none),
                IsError(kInvalid, "listen.tls.key: /k: holds no private key"));
  EXPECT_THAT(Check(server_.Pem(), server_.key.Pem("secret")),
              IsError(kInvalid, "is protected by a passphrase"));
  EXPECT_THAT(Check(server_.Pem(), server_.key.Pem(), "words"),
              IsError(kInvalid, "listen.tls.client_ca: /a: holds no certificate"));
}

TEST_F(TlsSetTest, ClientsAuthoritiesAreAuthoritiesAndOneIsValid) {
  EXPECT_THAT(Check(server_.Pem(), server_.key.Pem(), server_.Pem()),
              IsError(kInvalid, "certificate 1 is none of an authority"));
  const auto old = MadeCertificate::Make({.authority = true, .until = kNow - 1});
  EXPECT_THAT(Check(server_.Pem(), server_.key.Pem(), old.Pem()),
              IsError(kInvalid, "listen.tls.client_ca: /a: the certificate expired"));
  EXPECT_THAT(Check(server_.Pem(), server_.key.Pem(), absl::StrCat(old.Pem(), ca_.Pem())), IsOk());
}

TEST_F(TlsSetTest, FilesThatOthersMayChangeOrReadAreRefused) {
  const TempFolder folder;
  const TlsFiles files{.certificate = folder / "c", .key = folder / "k", .client_ca = folder / "a"};
  const auto read = [&](mode_t certificate, mode_t key, mode_t ca) {
    folder.Write("c", "1");
    folder.Write("k", "2");
    folder.Write("a", "3");
    ::chmod((folder / "c").c_str(), certificate);
    ::chmod((folder / "k").c_str(), key);
    ::chmod((folder / "a").c_str(), ca);
    return ReadTlsFiles(files);
  };
  ASSERT_OK_AND_ASSIGN(const TlsTexts texts, read(0644, 0600, 0644));
  EXPECT_EQ(texts, (TlsTexts{"1", "2", "3"}));
  constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
  for (const mode_t mode : {0664, 0646, 0666}) {
    EXPECT_THAT(read(mode, 0600, 0644), IsError(kFailed, "listen.tls.certificate"));
    EXPECT_THAT(read(0644, 0600, mode), IsError(kFailed, "listen.tls.client_ca"));
  }
  for (const mode_t mode : {0640, 0604, 0660, 0644})
    EXPECT_THAT(read(0644, mode, 0644), IsError(kFailed, "listen.tls.key"));
  ASSERT_THAT(read(0644, 0600, 0644), IsOk());
  ::unlink((folder / "k").c_str());
  EXPECT_THAT(ReadTlsFiles(files), IsError(absl::StatusCode::kNotFound, "listen.tls.key"));
  // A certificate in the place of the key needs no other mode.
  folder.Write("k", server_.Pem());
  folder.Write("c", server_.key.Pem());
  ::chmod((folder / "k").c_str(), 0644);
  EXPECT_THAT(ReadTlsFiles(files), IsError(kInvalid, "holds no private key, but a certificate"));
  EXPECT_THAT(ReadTlsFiles(files), IsError(kInvalid, "exchanged?"));
  EXPECT_THAT(Check(server_.Pem(), server_.Pem()),
              IsError(kInvalid, "holds no private key, but a certificate"));
  ::unlink((folder / "k").c_str());
  // Links of certificates are usual (certbot makes them); one of a key is not taken.
  ASSERT_EQ(::symlink((folder / "c").c_str(), (folder / "k").c_str()), 0);
  EXPECT_THAT(ReadTlsFiles(files), IsError(kFailed, "is a link"));
}

}  // namespace
}  // namespace octavo::security
