#include "server/rpc/transport/tls_credentials.h"

#include <string>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"

namespace octavo::rpc {
namespace {

// gRPC's C++ interface has no credentials whose certificates change; its C interface has.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  TlsCredentials(const security::TlsStore* store, bool required) : store_(*store) {
    const grpc_ssl_client_certificate_request_type clients =
        !store->asks_clients() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
        : required             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                               : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(clients, &Fetch, this));
  }
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC calls it at its start and for each new connection, one at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& own = *static_cast<TlsCredentials*>(self);
    const security::TlsStore::Current now = own.store_.Get();
    if (now.generation == own.fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    own.fetched_ = now.generation;
    const security::TlsTexts& texts = now.set->texts;
    const grpc_ssl_pem_key_cert_pair pair{.private_key = texts.key.c_str(),
                                          .cert_chain = texts.certificate.c_str()};
    // gRPC takes no set without authorities, even where it asks no client for a certificate: then
    // the server's own chain stands for them, and nothing is held against it.
    const std::string& authorities = texts.client_ca.empty() ? texts.certificate : texts.client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const security::TlsStore& store_;
  grpc_server_credentials* credentials_ = nullptr;
  int64_t fetched_ = 0;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(const security::TlsStore* store,
                                                            bool required) {
  return std::make_shared<TlsCredentials>(store, required);
}

}  // namespace octavo::rpc
