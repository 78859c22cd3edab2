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

bool IsUtf8(absl::string_view text) {
  auto at = reinterpret_cast<const unsigned char*>(text.data());
  for (auto left = static_cast<long>(text.size()); left > 0;) {
    unsigned long letter = 0;
    const int size = UTF8_getc(at, static_cast<int>(left), &letter);
    if (size <= 0) return false;
    at += size, left -= size;
  }
  return true;
}

// Letters without width, and those that turn the direction of writing: U+200B to U+200F, U+202A to
// U+202E, U+2060 to U+206F, U+FEFF.
bool HidesLetters(absl::string_view utf8) {
  for (size_t i = 0; i + 2 < utf8.size(); ++i) {
    const auto byte = [&](size_t k) { return static_cast<unsigned char>(utf8[i + k]); };
    if (byte(0) == 0xE2 && byte(1) == 0x80 &&
        ((byte(2) >= 0x8B && byte(2) <= 0x8F) || (byte(2) >= 0xAA && byte(2) <= 0xAE)))
      return true;
    if (byte(0) == 0xE2 && byte(1) == 0x81 && byte(2) >= 0xA0 && byte(2) <= 0xAF) return true;
    if (byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF) return true;
  }
  return false;
}

// Leaves out a name that could deceive whoever reads the table or the log.
void Add(const char* kind, absl::string_view name, std::vector<std::string>* names) {
  // Of a common name any letters; the other kinds are ASCII (IA5String). Texts of answers are
  // UTF-8.
  const bool ascii = absl::string_view(kind) != "cn:";
  const bool plain = !name.empty() && name.size() <= kMostNameBytes && IsUtf8(name) &&
                     std::none_of(name.begin(), name.end(),
                                  [&](char c) {
                                    const auto byte = static_cast<unsigned char>(c);
                                    return byte < 0x20 || byte == 0x7F || (ascii && byte > 0x7F);
                                  }) &&
                     !HidesLetters(name);
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
