#include "server/security/certificate.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::security {
namespace {

constexpr size_t kMostNameBytes = 256;

int64_t SecondsOf(const ASN1_TIME* time) {
  std::tm parts{};
  return time != nullptr && ASN1_TIME_to_tm(time, &parts) == 1 ? ::timegm(&parts) : 0;
}

// A name is left out where a person who reads the table, or the log, could be deceived by it.
void Add(const char* kind, absl::string_view name, std::vector<std::string>* names) {
  const bool plain = !name.empty() && name.size() <= kMostNameBytes &&
                     std::none_of(name.begin(), name.end(), [](char c) {
                       return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
                     });
  if (plain) names->push_back(absl::StrCat(kind, name));
}

absl::string_view TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

void AddAlternativeNames(const X509& certificate, std::vector<std::string>* names) {
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> all(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  if (all == nullptr) return;
  for (const auto& [type, kind] :
       {std::pair{GEN_URI, "uri:"}, std::pair{GEN_EMAIL, "email:"}, std::pair{GEN_DNS, "dns:"}}) {
    for (int i = 0; i < sk_GENERAL_NAME_num(all.get()); ++i) {
      const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all.get(), i);
      if (name->type == type) Add(kind, TextOf(name->d.ia5), names);
    }
  }
}

void AddCommonNames(const X509& certificate, std::vector<std::string>* names) {
  X509_NAME* const subject = X509_get_subject_name(&certificate);
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    unsigned char* text = nullptr;
    const int size =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size < 0) continue;
    Add("cn:", {reinterpret_cast<const char*>(text), static_cast<size_t>(size)}, names);
    OPENSSL_free(text);
  }
}

}  // namespace

absl::StatusOr<std::vector<Certificate>> ParseCertificates(absl::string_view pem) {
  const std::unique_ptr<BIO, void (*)(BIO*)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  std::vector<Certificate> found;
  ERR_clear_error();
  for (;;) {
    Certificate one(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (one == nullptr) break;
    found.push_back(std::move(one));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end)
    return absl::InvalidArgumentError(absl::StrCat("certificate ", found.size() + 1,
                                                   " of it cannot be read; allowed are PEM ",
                                                   "texts (-----BEGIN CERTIFICATE-----)"));
  if (found.empty())
    return absl::InvalidArgumentError(
        "holds no certificate; allowed are PEM texts (-----BEGIN CERTIFICATE-----)");
  return found;
}

std::string FingerprintOf(const X509& certificate) {
  std::array<unsigned char, 32> hash{};
  unsigned size = hash.size();
  if (X509_digest(&certificate, EVP_sha256(), hash.data(), &size) != 1) return "";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), size));
}

std::vector<std::string> NamesOf(const X509& certificate) {
  std::vector<std::string> names;
  Add("sha256:", FingerprintOf(certificate), &names);
  AddAlternativeNames(certificate, &names);
  AddCommonNames(certificate, &names);
  return names;
}

int64_t NotBefore(const X509& certificate) { return SecondsOf(X509_get0_notBefore(&certificate)); }
int64_t NotAfter(const X509& certificate) { return SecondsOf(X509_get0_notAfter(&certificate)); }

absl::StatusOr<ClientCertificate> ReadClientCertificate(absl::string_view pem) {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Certificate> found, ParseCertificates(pem));
  return ClientCertificate{.names = NamesOf(*found[0]), .not_after = NotAfter(*found[0])};
}

}  // namespace octavo::security
