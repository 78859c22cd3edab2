#include "server/security/tls_set.h"

#include <algorithm>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/security/certificate.h"
#include "server/security/secret_file.h"
#include "server/security/token.h"

namespace octavo::security {
namespace {

constexpr char kCertificateKey[] = "listen.tls.certificate";
constexpr char kKeyKey[] = "listen.tls.key";
constexpr char kClientCaKey[] = "listen.tls.client_ca";

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

absl::Status Bad(const char* key, const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", file, ": ", what));
}

// Why OpenSSL did not do the last thing that was asked of it.
std::string WhyNot() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? "unknown" : reason;
  ERR_clear_error();
  return text;
}

bool HoldsCertificateOnly(absl::string_view pem) {
  return absl::StrContains(pem, "-----BEGIN CERTIFICATE-----") &&
         !absl::StrContains(pem, "PRIVATE KEY-----");
}

absl::Status HoldsNoKey(const TlsFiles& files, absl::string_view pem) {
  return Bad(kKeyKey, files.key,
             HoldsCertificateOnly(pem)
                 ? "holds no private key, but a certificate; allowed is a PEM text (-----BEGIN "
                   "PRIVATE KEY-----) of mode 0600. Are the files of listen.tls.certificate and "
                   "listen.tls.key exchanged?"
                 : "holds no private key; allowed is a PEM text (-----BEGIN PRIVATE KEY-----)");
}

absl::StatusOr<Key> ParseKey(const TlsFiles& files, const std::string& pem) {
  const std::unique_ptr<BIO, void (*)(BIO*)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  ERR_clear_error();
  bool asked = false;
  Key key(PEM_read_bio_PrivateKey(
              bio.get(), nullptr,
              [](char*, int, int, void* was_asked) {
                *static_cast<bool*>(was_asked) = true;
                return -1;
              },
              &asked),
          EVP_PKEY_free);
  if (key != nullptr) return key;
  ERR_clear_error();
  if (asked)
    return Bad(kKeyKey, files.key,
               "is protected by a passphrase, which a daemon cannot be asked for; allowed is a key "
               "without one, of mode 0600");
  return HoldsNoKey(files, pem);
}

absl::Status CheckTimes(const char* key, const std::string& file, const X509& certificate,
                        size_t number, int64_t now) {
  const std::string which =
      number == 0 ? "the certificate" : absl::StrCat("certificate ", number + 1);
  if (NotAfter(certificate) <= now)
    return Bad(key, file, absl::StrCat(which, " expired at ", TimeText(NotAfter(certificate))));
  if (NotBefore(certificate) > now)
    return Bad(
        key, file,
        absl::StrCat(which, " is valid only from ", TimeText(NotBefore(certificate)), " on"));
  return absl::OkStatus();
}

absl::Status CheckChain(const TlsFiles& files, const std::vector<Certificate>& chain, int64_t now) {
  for (size_t i = 0; i < chain.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(CheckTimes(kCertificateKey, files.certificate, *chain[i], i, now));
    if (i + 1 == chain.size()) break;
    const bool issued = X509_check_issued(chain[i + 1].get(), chain[i].get()) == X509_V_OK &&
                        X509_verify(chain[i].get(), X509_get0_pubkey(chain[i + 1].get())) == 1;
    ERR_clear_error();
    if (!issued)
      return Bad(kCertificateKey, files.certificate,
                 absl::StrCat("certificate ", i + 1, " was not issued by certificate ", i + 2,
                              "; allowed is the server's own, then the one that issued it, and so "
                              "on"));
  }
  if (X509_check_purpose(chain[0].get(), X509_PURPOSE_SSL_SERVER, 0) != 1)
    return Bad(kCertificateKey, files.certificate,
               "the certificate is not for servers; allowed is one without extendedKeyUsage, or "
               "with serverAuth");
  return absl::OkStatus();
}

// What gRPC will do with them for each connection.
absl::Status CheckWithTls(const TlsFiles& files, const std::vector<Certificate>& chain,
                          const Key& key) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()),
                                                             SSL_CTX_free);
  ERR_clear_error();
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    ERR_clear_error();
    return Bad(kKeyKey, files.key,
               absl::StrCat("is not the key of the certificate in ", files.certificate));
  }
  if (SSL_CTX_use_certificate(context.get(), chain[0].get()) != 1)
    return Bad(kCertificateKey, files.certificate,
               absl::StrCat("TLS does not take the certificate: ", WhyNot()));
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1)
      return Bad(kCertificateKey, files.certificate,
                 absl::StrCat("TLS does not take certificate ", i + 1, ": ", WhyNot()));
  }
  if (SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1)
    return Bad(kKeyKey, files.key, absl::StrCat("TLS does not take the key: ", WhyNot()));
  return absl::OkStatus();
}

// The authorities' fingerprints. One of several that has expired is no error, so that the file need
// not be changed on that day; clients of it are refused.
absl::StatusOr<std::vector<std::string>> CheckClientCas(const TlsFiles& files,
                                                        const std::string& text, int64_t now) {
  auto found = ParseCertificates(text);
  if (!found.ok()) return Bad(kClientCaKey, files.client_ca, std::string(found.status().message()));
  std::vector<std::string> fingerprints;
  absl::Status valid = absl::InvalidArgumentError("");
  for (size_t i = 0; i < found->size(); ++i) {
    const X509& one = *(*found)[i];
    if (X509_check_ca((*found)[i].get()) == 0)
      return Bad(kClientCaKey, files.client_ca,
                 absl::StrCat("certificate ", i + 1, " is none of an authority (CA:TRUE)"));
    fingerprints.push_back(FingerprintOf(one));
    if (!valid.ok()) valid = CheckTimes(kClientCaKey, files.client_ca, one, i, now);
  }
  OCTAVO_RETURN_IF_ERROR(valid);
  std::sort(fingerprints.begin(), fingerprints.end());
  return fingerprints;
}

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files) {
  TlsTexts texts;
  const auto read = [](const char* key, absl::StatusOr<std::string> from,
                       std::string* to) -> absl::Status {
    if (!from.ok()) return Annotate(from.status(), key);
    *to = *std::move(from);
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(
      read(kCertificateKey, ReadTrustedFile(files.certificate), &texts.certificate));
  absl::StatusOr<std::string> key = ReadSecretFile(files.key);
  if (absl::IsFailedPrecondition(key.status())) {
    // A certificate in its place has the mode of one: another mode would not help.
    if (const auto text = ReadTrustedFile(files.key); text.ok() && HoldsCertificateOnly(*text))
      return HoldsNoKey(files, *text);
  }
  OCTAVO_RETURN_IF_ERROR(read(kKeyKey, std::move(key), &texts.key));
  if (!files.client_ca.empty())
    OCTAVO_RETURN_IF_ERROR(read(kClientCaKey, ReadTrustedFile(files.client_ca), &texts.client_ca));
  return texts;
}

absl::StatusOr<TlsSet> CheckTlsTexts(const TlsFiles& files, TlsTexts texts, int64_t now) {
  auto chain = ParseCertificates(texts.certificate);
  if (!chain.ok())
    return Bad(kCertificateKey, files.certificate, std::string(chain.status().message()));
  OCTAVO_ASSIGN_OR_RETURN(const Key key, ParseKey(files, texts.key));
  OCTAVO_RETURN_IF_ERROR(CheckWithTls(files, *chain, key));
  OCTAVO_RETURN_IF_ERROR(CheckChain(files, *chain, now));
  TlsSet set;
  if (!files.client_ca.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(set.client_cas, CheckClientCas(files, texts.client_ca, now));
  }
  set.names = NamesOf(*(*chain)[0]);
  set.not_after = NotAfter(*(*chain)[0]);
  for (const Certificate& one : *chain) set.not_after = std::min(set.not_after, NotAfter(*one));
  set.texts = std::move(texts);
  return set;
}

}  // namespace octavo::security
