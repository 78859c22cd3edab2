#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_interceptor.h"

// Bearer tokens of clients (proto/README.md, Rights).
namespace octavo {

/// Whether a text begins as a token does: it must not be shown.
inline bool LooksLikeToken(const std::string& text) {
  return text.rfind("octavo_", 0) == 0 && text.size() > 32 && text[15] == '_' &&
         text.find_first_not_of("0123456789abcdef", 7) == 15;
}

/// The token in a file: "octavo_<id>_<secret>" on one line. Throws std::runtime_error, whose text
/// says what is wrong with the file and shows nothing of it.
inline std::string ReadTokenFile(const std::string& path) {
  constexpr char kAllowed[] = "allowed is a file with one token, as octavo token add makes it";
  if (LooksLikeToken(path))
    throw std::runtime_error(std::string("is a token and not the name of a file; ") + kAllowed);
  std::ifstream file(path, std::ios::binary);
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw std::runtime_error("is '" + path + "', which cannot be read (" + std::strerror(errno) +
                             "); " + kAllowed);
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  constexpr size_t kSize = 7 + 8 + 1 + 64;
  const std::string hex = "0123456789abcdef";
  if (text.size() != kSize || text.rfind("octavo_", 0) != 0 || text[15] != '_' ||
      text.find_first_not_of(hex, 7) != 15 || text.find_first_not_of(hex, 16) != std::string::npos)
    throw std::runtime_error("is '" + path + "', which holds no token; " + kAllowed);
  return text;
}

/// Puts a token into every call of a channel.
class BearerToken final : public grpc::experimental::Interceptor {
 public:
  explicit BearerToken(const std::string& token) : value_("Bearer " + token) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->insert({"authorization", value_});
    methods->Proceed();
  }

 private:
  const std::string value_;
};

/// A channel without TLS, whose calls carry the token if it is not empty.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                                  grpc::ChannelArguments arguments,
                                                  const std::string& token) {
  // A proxy of the environment (http_proxy) would read everything, the token included: what goes to
  // octavod goes to octavod.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (token.empty())
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  class Factory final : public grpc::experimental::ClientInterceptorFactoryInterface {
   public:
    explicit Factory(std::string token) : token_(std::move(token)) {}
    grpc::experimental::Interceptor* CreateClientInterceptor(
        grpc::experimental::ClientRpcInfo*) override {
      return new BearerToken(token_);
    }

   private:
    const std::string token_;
  };
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<Factory>(token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, grpc::InsecureChannelCredentials(), arguments, std::move(interceptors));
}

}  // namespace octavo
