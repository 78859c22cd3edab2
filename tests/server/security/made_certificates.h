#pragma once

#include <cstdint>
#include <memory>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <string>

// Certificates and keys for tests.
namespace octavo::testing {

struct MadeKey {
  std::shared_ptr<EVP_PKEY> key;

  static MadeKey Ec() { return {{EVP_EC_gen("P-256"), EVP_PKEY_free}}; }
  static MadeKey Rsa(unsigned bits) { return {{EVP_RSA_gen(bits), EVP_PKEY_free}}; }
  std::string Pem(const char* passphrase = nullptr) const {
    const std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
    PEM_write_bio_PrivateKey(bio.get(), key.get(),
                             passphrase == nullptr ? nullptr : EVP_aes_256_cbc(), nullptr, 0,
                             nullptr, const_cast<char*>(passphrase));
    return TextOf(bio.get());
  }
  static std::string TextOf(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return {data, static_cast<size_t>(size)};
  }
};

/// When certificates of tests are valid, seconds since 1970.
inline constexpr int64_t kFrom = 1'000'000'000, kUntil = 2'000'000'000;

struct MadeCertificate {
  std::shared_ptr<X509> x509;
  MadeKey key;

  struct Wanted {
    std::string cn = "anna";
    std::string names;  // "DNS:localhost,URI:spiffe://lab/anna"; empty = no subjectAltName
    std::string usage;  // "serverAuth"; empty = any
    bool authority = false;
    int64_t from = kFrom, until = kUntil;
    const MadeCertificate* issuer = nullptr;  // null = self-signed
    MadeKey key = MadeKey::Ec();
  };
  static MadeCertificate Make(const Wanted& wanted) {
    MadeCertificate made{{X509_new(), X509_free}, wanted.key};
    X509* const one = made.x509.get();
    static int64_t serial = 0;
    X509_set_version(one, 2);
    ASN1_INTEGER_set_int64(X509_get_serialNumber(one), ++serial);
    ASN1_TIME_set(X509_getm_notBefore(one), wanted.from);
    ASN1_TIME_set(X509_getm_notAfter(one), wanted.until);
    X509_NAME* const subject = X509_get_subject_name(one);
    X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(wanted.cn.data()),
                               static_cast<int>(wanted.cn.size()), -1, 0);
    X509* const issuer = wanted.issuer == nullptr ? one : wanted.issuer->x509.get();
    X509_set_issuer_name(one, X509_get_subject_name(issuer));
    X509_set_pubkey(one, made.key.key.get());
    const auto extend = [&](int nid, const std::string& value) {
      if (value.empty()) return;
      X509V3_CTX context;
      X509V3_set_ctx(&context, issuer, one, nullptr, nullptr, 0);
      const std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> extension(
          X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()), X509_EXTENSION_free);
      X509_add_ext(one, extension.get(), -1);
    };
    extend(NID_basic_constraints, wanted.authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    extend(NID_subject_alt_name, wanted.names);
    extend(NID_ext_key_usage, wanted.usage);
    X509_sign(one, (wanted.issuer == nullptr ? made.key : wanted.issuer->key).key.get(),
              EVP_sha256());
    return made;
  }
  std::string Pem() const {
    const std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
    PEM_write_bio_X509(bio.get(), x509.get());
    return MadeKey::TextOf(bio.get());
  }
};

}  // namespace octavo::testing
