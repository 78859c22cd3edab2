#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_interceptor.h"

// How clients log in: bearer tokens and TLS (proto/README.md, Rights).
namespace octavo {

/// A value of a client's options, and what it was given by, for messages.
struct Given {
  std::string value;
  std::string by;
  bool empty() const { return value.empty(); }
};
/// The option's own value, or else that of the environment.
inline Given GivenBy(const std::string& value, const char* option, const char* variable) {
  if (!value.empty()) return {value, option};
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? Given{"", option} : Given{text, variable};
}

/// Files by which a client logs in. All may be empty.
struct Login {
  Given token_file;   // with a bearer token
  Given ca_file;      // of the authority that issued the server's certificate; turns TLS on
  Given cert_file;    // the client's own certificate
  Given key_file;     // its key
  Given server_name;  // in the server's certificate, if it is not the host of the address
};

/// A file of a login that cannot be used: `by` is what gave it. The text shows nothing of it.
class LoginError : public std::runtime_error {
 public:
  LoginError(const Given& given, const std::string& what)
      : std::runtime_error(what), by(given.by) {}
  const std::string by;
};

inline std::string ReadLoginFile(const Given& file, const std::string& allowed) {
  std::ifstream in(file.value, std::ios::binary);
  std::string text(1 << 20, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad())
    throw LoginError(file, "is '" + file.value + "', which cannot be read (" +
                               std::strerror(errno) + "); allowed is " + allowed);
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

/// What is wrong with the address of a server, as the end of a sentence that begins with what gave
/// it; empty if nothing is. gRPC takes the port modulo 65536, and 0 for words.
inline std::string ProblemOfAddress(const std::string& address) {
  const auto starts = [](const std::string& text, const std::string& with) {
    return text.rfind(with, 0) == 0;
  };
  const std::string is = "is '" + address + "'";
  const std::string allowed = "; allowed host:port with port 1 to 65535, or unix:/path";
  constexpr char kSpace[] = " \t\r\n\v\f";
  if (address.empty() || address.find_first_of(kSpace) == 0 ||
      address.find_last_of(kSpace) == address.size() - 1)
    return is + allowed;
  for (const char* scheme : {"unix://", "unix:", "unix-abstract:"}) {
    if (starts(address, scheme))
      return address.size() == std::strlen(scheme) ? is + allowed : std::string();
  }
  const size_t scheme = address.find("://");
  if (scheme != std::string::npos && !starts(address, "dns://"))
    return is + "; allowed are host:port (octavod listens on 50051) and unix:/path, without " +
           address.substr(0, scheme + 3);
  if (address.find(':') == std::string::npos)
    return is + " without a port; allowed are host:port (octavod listens on 50051) and unix:/path";
  std::string rest = address;
  const bool v6 = starts(address, "ipv6:");  // may have the brackets as %5B, %5D
  const bool several = v6 || starts(address, "ipv4:");
  if (starts(rest, "dns://"))
    rest.erase(0, std::min(rest.find('/', 6), rest.size() - 1) + 1);  // a name server may precede
  for (const char* prefix : {"dns:", "ipv4:", "ipv6:"}) {
    if (starts(address, prefix) && rest == address) {
      rest.erase(0, std::strlen(prefix));
      break;
    }
  }
  for (size_t start = 0; start <= rest.size();) {
    const size_t end = several ? std::min(rest.find(',', start), rest.size()) : rest.size();
    const std::string one = rest.substr(start, end - start);
    const size_t colon = one.rfind(':');
    if (colon == std::string::npos || colon == 0) return is + allowed;
    const std::string host = one.substr(0, colon), port = one.substr(colon + 1);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (host.find_first_of(std::string(kSpace) + "/") != std::string::npos ||
        (host.find(':') != std::string::npos && !brackets && !v6) || port.empty() ||
        port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos ||
        std::stoi(port) < 1 || std::stoi(port) > 65535)
      return is + allowed;
    start = end + 1;
  }
  return "";
}

/// A secret that others of this host can read is none: as ssh, this refuses a file of the user's
/// own. One of somebody else (a credential of systemd, a secret of a container) has the mode that
/// they gave it.
inline void CheckPrivate(const Given& file) {
  struct stat info {};
  if (::stat(file.value.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != ::geteuid() || (info.st_mode & 077) == 0)
    return;
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
  throw LoginError(file, "is '" + file.value + "', which has mode " + mode +
                             ", so that others may read or change it; allowed is 0600 (chmod 600 " +
                             file.value + ")");
}

/// Whether a text begins as a token does: it must not be shown.
inline bool LooksLikeToken(const std::string& text) {
  return text.rfind("octavo_", 0) == 0 && text.size() > 32 && text[15] == '_' &&
         text.find_first_not_of("0123456789abcdef", 7) == 15;
}

/// The token in a file: "octavo_<id>_<secret>" on one line.
inline std::string ReadTokenFile(const Given& file) {
  constexpr char kAllowed[] = "a file with one token, as octavo token add makes it";
  if (LooksLikeToken(file.value))
    throw LoginError(file,
                     std::string("is a token and not the name of a file; allowed is ") + kAllowed);
  std::string text = ReadLoginFile(file, kAllowed);
  constexpr char kSpace[] = " \t\r\n\v\f";  // of an editor, around the token
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
  text.erase(text.find_last_not_of(kSpace) + 1);
  constexpr size_t kSize = 7 + 8 + 1 + 64;
  const std::string hex = "0123456789abcdef";
  if (text.size() != kSize || text.rfind("octavo_", 0) != 0 || text[15] != '_' ||
      text.find_first_not_of(hex, 7) != 15 || text.find_first_not_of(hex, 16) != std::string::npos)
    throw LoginError(file, "is '" + file.value + "', which holds no token; allowed is " + kAllowed);
  CheckPrivate(file);
  return text;
}

/// Certificates in a PEM file.
inline std::string ReadCertificateFile(const Given& file) {
  constexpr char kAllowed[] = "a PEM file with certificates (-----BEGIN CERTIFICATE-----)";
  std::string text = ReadLoginFile(file, kAllowed);
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  const std::unique_ptr<X509, void (*)(X509*)> first(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  ERR_clear_error();
  if (first == nullptr)
    throw LoginError(file, "is '" + file.value + "', which holds none; allowed is " + kAllowed);
  return text;
}

/// The private key in a PEM file, which must be that of the certificate.
inline std::string ReadKeyFile(const Given& file, const std::string& certificate,
                               const Given& certificate_file) {
  constexpr char kAllowed[] = "a PEM file with a private key (-----BEGIN PRIVATE KEY-----)";
  std::string text = ReadLoginFile(file, kAllowed);
  const auto open = [](const std::string& pem) {
    return std::unique_ptr<BIO, int (*)(BIO*)>(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  };
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      PEM_read_bio_PrivateKey(open(text).get(), nullptr, no_passphrase, nullptr), EVP_PKEY_free);
  ERR_clear_error();
  if (key == nullptr)
    throw LoginError(file, "is '" + file.value +
                               "', which holds no key, or one with a passphrase; "
                               "allowed is " +
                               kAllowed);
  const std::unique_ptr<X509, void (*)(X509*)> first(
      PEM_read_bio_X509(open(certificate).get(), nullptr, nullptr, nullptr), X509_free);
  const bool fits = X509_check_private_key(first.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits)
    throw LoginError(file, "is '" + file.value + "', which is not the key of the certificate in '" +
                               certificate_file.value + "'");
  CheckPrivate(file);
  return text;
}

/// Whether calls to this address speak TLS. The Unix socket does not: there the kernel tells the
/// server who calls.
inline bool SpeaksTls(const std::string& address, const Login& login) {
  return !login.ca_file.empty() && address.rfind("unix:", 0) != 0;
}

/// Whether calls to this address leave the host, by its text.
inline bool LeavesTheHost(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return false;
  std::string host = address.substr(0, address.rfind(':'));
  for (const char* scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (host.rfind(scheme, 0) == 0) host.erase(0, std::strlen(scheme));
  }
  const bool v4 =
      host.rfind("127.", 0) == 0 && host.find_first_not_of("0123456789.") == std::string::npos;
  return !v4 && host != "localhost" && host != "[::1]";
}

/// A token that anybody on the way could read is not sent, unless the environment says that the
/// network is trusted.
inline void CheckNotInClear(const std::string& address, const Login& login) {
  const char* const allowed = std::getenv("OCTAVO_TOKEN_IN_CLEAR");
  if (SpeaksTls(address, login) || !LeavesTheHost(address) ||
      (allowed != nullptr && std::string(allowed) == "1"))
    return;
  throw LoginError(login.token_file,
                   "would be sent to " + address +
                       " in clear: without TLS anybody on the way can read and use it; give the "
                       "file of the server's authority (--ca-file, OCTAVO_CA_FILE), or set "
                       "OCTAVO_TOKEN_IN_CLEAR=1 if the network is trusted");
}

/// What may be wrong where a server does not answer, by gRPC's text for it; empty if nothing is
/// known. A client whose certificate is refused is told nothing by TLS.
inline std::string AdviceOnTls(const std::string& address, const Login& login,
                               const std::string& error) {
  if (address.rfind("unix:", 0) == 0) return "";
  const auto says = [&](std::initializer_list<const char*> parts) {
    for (const char* part : parts) {
      if (error.find(part) != std::string::npos) return true;
    }
    return false;
  };
  const bool closed = says({"Socket closed", "Connection reset", "Broken pipe", "handshake"});
  if (!SpeaksTls(address, login))
    return closed ? "if the server speaks TLS, give the file of its authority (--ca-file, "
                    "OCTAVO_CA_FILE)"
                  : "";
  if (says({"wrong version number", "WRONG_VERSION"}))
    return "the server does not speak TLS there: leave out " + login.ca_file.by;
  if (says({"certificate verify failed", "CERTIFICATE_VERIFY_FAILED"}))
    return "the server's certificate was not issued by an authority in " + login.ca_file.value +
           " (" + login.ca_file.by + "), or is not valid now";
  if (says({"is not in peer certificate", "Hostname Verification"}))
    return "the server's certificate is for other names than the host of the address; "
           "--server-name names one that it has";
  if (!closed) return "";
  return login.cert_file.empty()
             ? "the server may require a certificate of the client (--cert-file and --key-file, "
               "OCTAVO_CERT_FILE and OCTAVO_KEY_FILE)"
             : "the server may not take the certificate in " + login.cert_file.value + " (" +
                   login.cert_file.by +
                   "): of another authority, or not valid now; its log says why";
}

/// Puts the token, if there is one, into every call of a channel, and says in plain words what may
/// be wrong where no server answers.
class LoginInterceptor final : public grpc::experimental::Interceptor {
 public:
  LoginInterceptor(const std::string& token, std::string address, Login login)
      : value_(token.empty() ? "" : "Bearer " + token),
        address_(std::move(address)),
        login_(std::move(login)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (!value_.empty() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->insert({"authorization", value_});
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_STATUS)) {
      grpc::Status* const status = methods->GetRecvStatus();
      if (status != nullptr && status->error_code() == grpc::StatusCode::UNAVAILABLE &&
          status->error_details().empty()) {
        const std::string advice = AdviceOnTls(address_, login_, status->error_message());
        if (!advice.empty())
          *status = grpc::Status(status->error_code(), status->error_message() + "; " + advice);
      }
    }
    methods->Proceed();
  }

 private:
  const std::string value_, address_;
  const Login login_;
};

/// A channel whose calls log in so. Throws LoginError for a file that cannot be used.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                                  grpc::ChannelArguments arguments,
                                                  const Login& login) {
  // A proxy of the environment (http_proxy) would read everything, the token included: what goes to
  // octavod goes to octavod.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::string token = login.token_file.empty() ? "" : ReadTokenFile(login.token_file);
  if (!token.empty()) CheckNotInClear(address, login);
  grpc::SslCredentialsOptions tls;
  if (login.cert_file.empty() != login.key_file.empty()) {
    const Given& missing = login.cert_file.empty() ? login.cert_file : login.key_file;
    const Given& there = login.cert_file.empty() ? login.key_file : login.cert_file;
    throw LoginError(missing, "is not given, and " + there.by +
                                  " is; a certificate and its key belong together");
  }
  if (login.ca_file.empty() && !login.cert_file.empty())
    throw LoginError(login.ca_file, "is not given, and " + login.cert_file.by +
                                        " is; the file of the server's authority is needed to "
                                        "trust the server");
  if (!login.ca_file.empty()) tls.pem_root_certs = ReadCertificateFile(login.ca_file);
  if (!login.cert_file.empty()) {
    tls.pem_cert_chain = ReadCertificateFile(login.cert_file);
    tls.pem_private_key = ReadKeyFile(login.key_file, tls.pem_cert_chain, login.cert_file);
  }
  if (address.rfind("unix:", 0) == 0 && token.empty())
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!login.server_name.empty()) arguments.SetSslTargetNameOverride(login.server_name.value);
  class Factory final : public grpc::experimental::ClientInterceptorFactoryInterface {
   public:
    Factory(std::string token, std::string address, Login login)
        : token_(std::move(token)), address_(std::move(address)), login_(std::move(login)) {}
    grpc::experimental::Interceptor* CreateClientInterceptor(
        grpc::experimental::ClientRpcInfo*) override {
      return new LoginInterceptor(token_, address_, login_);
    }

   private:
    const std::string token_, address_;
    const Login login_;
  };
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<Factory>(token, address, login));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address,
      SpeaksTls(address, login) ? grpc::SslCredentials(tls) : grpc::InsecureChannelCredentials(),
      arguments, std::move(interceptors));
}

}  // namespace octavo
